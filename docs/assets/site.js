// A page that is opened as a file cannot read the index of the search.
if (location.protocol === "file:") {
  const note = document.createElement("p");
  note.className = "as-a-file";
  note.textContent = "Opened as a file, this site has no search. With it: python -m http.server --directory runs/site";
  document.querySelector(".md-content__inner")?.prepend(note);
}
