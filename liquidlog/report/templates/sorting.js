"use strict";
const table = document.querySelector("table");
const heads = Array.from(table.tHead.rows[0].cells);
const valueOf = (body, column) => body.rows[0].cells[column].dataset.value;
const before = (one, other, kind) =>
  kind === "text" ? one.localeCompare(other) : Number(one) - Number(other);
const compared = (column, kind, down) => (a, b) => {
  const [one, other] = [valueOf(a, column), valueOf(b, column)];
  if (one === undefined || other === undefined) {
    return (one === undefined) - (other === undefined) || a.dataset.place - b.dataset.place;
  }
  return (down ? -1 : 1) * before(one, other, kind) || a.dataset.place - b.dataset.place;
};
heads.forEach((head, column) => {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = head.textContent;
  head.replaceChildren(button);
  button.addEventListener("click", () => {
    const first = head.dataset.kind === "text" || column === 1 ? "ascending" : "descending";
    const other = first === "ascending" ? "descending" : "ascending";
    const order = head.getAttribute("aria-sort") === first ? other : first;
    heads.forEach(one => one.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", order);
    table.append(...Array.from(table.tBodies)
      .sort(compared(column, head.dataset.kind, order === "descending")));
  });
});
table.classList.add("sortable");
