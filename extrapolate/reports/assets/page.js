"use strict";
// The theme: the system's, or the reader's choice, which is kept where the browser allows it.
(() => {
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const select = document.getElementById("theme");
  const kept = { get: () => { try { return localStorage.getItem("theme"); } catch { return null; } },
                 set: (value) => { try { localStorage.setItem("theme", value); } catch { /* a page opened from a file may not */ } } };
  const show = () => {
    const dark = select.value === "dark" || (select.value === "auto" && system.matches);
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    document.dispatchEvent(new Event("themechange"));
  };
  if (["auto", "light", "dark"].includes(kept.get())) select.value = kept.get();
  select.addEventListener("change", () => { kept.set(select.value); show(); });
  system.addEventListener("change", show);
  show();
})();

// Tables: a click on a column's name sorts, a second one turns the order round; what has no number comes last.
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const key = (row, column) => {
    const cell = row.cells[column];
    if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
    // A number with an interval, or with commas. The names of rows are no numbers.
    const number = column > 0 && cell.textContent.match(/^[+-]?\d[\d,]*(\.\d+)?(?!\w)/);
    return number ? Number(number[0].replaceAll(",", "")) : cell.textContent;
  };
  heads.forEach((head, column) => {
    head.setAttribute("aria-sort", "none");
    const cells = [...body.rows].map((row) => row.cells[column]);
    const said = cells.map((cell) => cell.textContent).filter((text) => text && text !== "n/a");
    // Words stand at the left, numbers at the right.
    if (said.length && said.every((text) => /^\p{L}/u.test(text))) for (const cell of [head, ...cells]) cell.classList.add("text");
    head.firstElementChild.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows].map((row) => [key(row, column), row]);
      rows.sort(([a], [b]) => {
        if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
        const order = typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
        return down ? -order : order;
      });
      body.append(...rows.map(([, row]) => row));
    });
  });
}
// Notes: beside the pointer, or, where there is none, in the cells themselves.
(() => {
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  tip.setAttribute("aria-hidden", "true");
  document.body.append(tip);
  document.addEventListener("mouseover", (event) => {
    const cell = event.target.closest("td");
    const note = cell && !cell.closest(".with-notes") && cell.querySelector(".note");
    tip.hidden = !note;
    if (!note) return;
    tip.textContent = note.textContent;
    const at = cell.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(at.left, window.innerWidth - tip.offsetWidth - 4))}px`;
    const below = at.bottom + 4 + tip.offsetHeight < window.innerHeight;
    tip.style.top = `${below ? at.bottom + 4 : at.top - tip.offsetHeight - 4}px`;
  });
})();
for (const box of document.querySelectorAll(".notes")) {
  box.addEventListener("change", () => box.closest(".table").classList.toggle("with-notes", box.checked));
}
for (const field of document.querySelectorAll(".filter")) {
  field.addEventListener("input", () => {
    const wanted = field.value.toLowerCase();
    for (const row of field.closest(".table").querySelector("tbody").rows) {
      row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
    }
  });
}

// Switches: one view of several.
for (const box of document.querySelectorAll(".switch")) {
  box.addEventListener("change", (event) => {
    if (event.target.closest(".switch") !== box || event.target.type !== "radio") return;
    for (const view of box.querySelectorAll(":scope > .view")) view.hidden = view.dataset.view !== event.target.value;
  });
}
