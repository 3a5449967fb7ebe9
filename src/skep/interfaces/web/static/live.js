// Parts of a page marked `data-live` (seconds) are shown anew from the same address, for as long as the server marks
// them. A form marked `data-ask` is asked while a person types. Without scripts both work by loading the page.
let timer = null;
let asked = 0;

async function look() {
  clearTimeout(timer);
  const mine = ++asked;
  let seconds = 5;
  if (!document.hidden) {
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" } });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (mine !== asked) return;
      if (answer.ok) seconds = swap(page);
    } catch {
      // the server is away: it is asked again
    }
  }
  if (mine === asked && seconds) timer = setTimeout(look, seconds * 1000);
}

function swap(page) {
  for (const part of document.querySelectorAll("[data-live]")) {
    const fresh = page.getElementById(part.id);
    const busy = part.contains(document.activeElement) || part.querySelector("details[open]");
    if (fresh && !busy && fresh.outerHTML !== part.outerHTML) part.replaceWith(fresh);
  }
  return pause(page);
}

function pause(page) {
  return Number(page.querySelector("[data-live]")?.dataset.live ?? 0);
}

const form = document.querySelector("form[data-ask]");
form?.addEventListener("input", () => {
  const query = new URLSearchParams(new FormData(form));
  history.replaceState(null, "", `${form.action}?${query}`);
  clearTimeout(timer);
  timer = setTimeout(look, 150);
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });
timer = setTimeout(look, pause(document) * 1000);
