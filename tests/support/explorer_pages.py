"""What tests ask of the explorer's page in a browser."""


def asked(explorer, open_page, settings="model=translator&text=one two three", **options):
    page = open_page(f"{explorer.url}#{settings}", **options)
    page.wait_for_selector(".token, .error")
    return page


def rows(page):
    return page.locator(".strip").nth(1).locator(".token")


def columns(page):
    return page.locator(".strip").nth(0).locator(".token")


def shaded(tokens):
    weights = tokens.evaluate_all("all => all.map(token => token.style.getPropertyValue('--weight'))")
    return [float(weight or 0) for weight in weights]
