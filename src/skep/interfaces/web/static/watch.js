// While a source is cloned and indexed: shows how far it is, and shows the page anew when it is done.
const box = document.querySelector("[data-watch]");
const bar = box.querySelector("progress");
const number = new Intl.NumberFormat("en");

async function look() {
  const answer = await fetch(`/api/v1/sources/${encodeURIComponent(box.dataset.watch)}`);
  if (!answer.ok) return;
  const source = await answer.json();
  const { progress, state } = source;
  document.querySelector("[data-state]").textContent = state;
  if (state === "failing" || state === "asking" || state === "gone" || (source.indexed_commit && !progress)) {
    location.reload();
    return;
  }
  box.querySelector("[data-stage]").textContent = progress?.stage ?? "waiting";
  if (progress?.total) {
    bar.max = progress.total;
    bar.value = progress.done;
    box.querySelector("[data-count]").textContent = `${number.format(progress.done)} of ${number.format(progress.total)}`;
  } else {
    bar.removeAttribute("value");
  }
  setTimeout(look, 1000);
}

setTimeout(look, 1000);
