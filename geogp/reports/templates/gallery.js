// Make the headings buttons that sort the table; numbers by data-value, missing values last.
const table = document.getElementById("numbers");
const keyOf = (row, place) => {
  const cell = row.cells[place], value = cell.dataset.value;
  return value === undefined ? cell.textContent : value === "" ? null : Number(value);
};
[...table.tHead.rows[0].cells].forEach((heading, place) => {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...heading.childNodes);
  heading.append(button);
  button.addEventListener("click", () => {
    const down = heading.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    const sorted = [...table.tBodies[0].rows].sort((one, two) => {
      const a = keyOf(one, place), b = keyOf(two, place);
      if (a === null || b === null) return (a === null) - (b === null);
      const order = typeof a === "number" ? a - b : a.localeCompare(b);
      return down ? -order : order;
    });
    table.tBodies[0].append(...sorted);
  });
});
