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

// A field that shows only the maps whose texts contain its text, whatever its capitals and accents.
const plain = (text) => text.normalize("NFD").replace(/\p{M}/gu, "").trim().toLowerCase();
const label = document.createElement("label");
const field = document.createElement("input");
const found = document.createElement("output");
label.className = "find";
field.type = "search";
label.append("Find a map", field, found);
document.querySelector("header").append(label);
field.addEventListener("input", () => {
  const wish = plain(field.value), cards = [...document.querySelectorAll(".card")];
  for (const one of [...cards, ...table.tBodies[0].rows]) one.hidden = !plain(one.textContent).includes(wish);
  const shown = (part) => part.querySelector(".card:not([hidden])") !== null;
  for (const section of document.querySelectorAll("section:has(.card)")) section.hidden = !shown(section);
  found.textContent = wish && `${cards.filter((one) => !one.hidden).length} of ${cards.length} maps`;
});
