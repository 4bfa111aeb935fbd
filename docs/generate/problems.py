"""What fails a build of the site: collected first, so that all of it can be mended at once."""


class Problems(list[str]):
    """Sentences, each of which describes a mistake and its fix."""

    def require(self, condition: object, problem: str) -> None:
        """Adds a problem unless a condition holds."""
        if not condition:
            self.append(problem)

    def end(self) -> None:
        """Ends the process with all problems, if there are any."""
        if self:
            raise SystemExit("\n".join(f"- {problem}" for problem in self))
