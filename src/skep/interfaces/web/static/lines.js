// #L12-L20 marks a range; shift-click on a second number makes one.
const RANGE = /^#L(\d+)(?:-L?(\d+))?$/;

function range() {
  const found = RANGE.exec(location.hash);
  if (!found) return null;
  const first = Number(found[1]);
  const last = Number(found[2] ?? found[1]);
  return [Math.min(first, last), Math.max(first, last)];
}

function mark(scroll) {
  for (const line of document.querySelectorAll(".line.marked")) line.classList.remove("marked");
  const wanted = range();
  if (!wanted) return;
  const [first, last] = wanted;
  for (let n = first; n <= last; n += 1) {
    const line = document.getElementById(`L${n}`);
    if (!line) break;
    line.classList.add("marked");
  }
  if (scroll) document.getElementById(`L${first}`)?.scrollIntoView({ block: "center" });
}

document.querySelector(".whole")?.addEventListener("click", (event) => {
  const number = event.target.closest("a.n");
  const before = range();
  if (!number || !event.shiftKey || !before) return;
  event.preventDefault();
  const n = Number(number.textContent);
  history.replaceState(null, "", `#L${Math.min(before[0], n)}-L${Math.max(before[0], n)}`);
  mark(false);
});
addEventListener("hashchange", () => mark(false));
mark(true);
