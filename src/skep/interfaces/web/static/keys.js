// "/" goes to the search box; j, k and the arrows walk over the hits; Enter follows the one that has the focus.
const stops = () => [...document.querySelectorAll(".hits a.line, .commits li > a, ul.tree a, table.sources td:first-child a")];

function walk(step) {
  const all = stops();
  if (!all.length) return false;
  const here = all.indexOf(document.activeElement);
  const next = here < 0 ? (step > 0 ? 0 : all.length - 1) : here + step;
  if (next < 0) document.getElementById("q")?.focus();
  else if (next < all.length) {
    all[next].focus({ preventScroll: true });
    all[next].scrollIntoView({ block: "nearest" });
  }
  return true;
}

const STEPS = { j: 1, k: -1, ArrowDown: 1, ArrowUp: -1 };

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.closest("input, textarea, select");
  if (typing) {
    if (event.key === "Escape") typing.blur();
    if (event.key === "ArrowDown" && typing.id === "q" && walk(1)) event.preventDefault();
    return;
  }
  if (event.key === "/") {
    const box = document.getElementById("q");
    box?.focus();
    box?.select();
    event.preventDefault();
    return;
  }
  const step = STEPS[event.key];
  const arrow = event.key.startsWith("Arrow");
  if (!step || (arrow && !stops().includes(document.activeElement))) return;
  if (walk(step)) event.preventDefault();
});
