// Offers what may follow in the search box. Without scripts the box is a plain one.
const box = document.getElementById("q");
const list = document.getElementById("offers");
let offers = [];
let chosen = -1;
let asked = 0;

function close() {
  offers = [];
  chosen = -1;
  list.hidden = true;
  box.setAttribute("aria-expanded", "false");
  box.removeAttribute("aria-activedescendant");
}

function item(offer, number) {
  const made = document.createElement("li");
  made.id = `offer${number}`;
  made.role = "option";
  const text = document.createElement("code");
  text.textContent = offer.text.trim();
  const about = document.createElement("span");
  about.textContent = offer.about;
  made.append(text, about);
  made.addEventListener("mousedown", (event) => { event.preventDefault(); take(number); });
  return made;
}

function choose(number) {
  chosen = (number + offers.length + 1) % (offers.length + 1);
  if (chosen === offers.length) chosen = -1;
  [...list.children].forEach((one, at) => one.setAttribute("aria-selected", String(at === chosen)));
  if (chosen < 0) box.removeAttribute("aria-activedescendant");
  else {
    box.setAttribute("aria-activedescendant", `offer${chosen}`);
    list.children[chosen].scrollIntoView({ block: "nearest" });
  }
}

function take(number) {
  const { text, start, end } = offers[number];
  const chars = [...box.value]; // places count characters, where the browser counts halves of some
  const before = chars.slice(0, start).join("") + text;
  box.value = before + chars.slice(end).join("").replace(/^ /, text.endsWith(" ") ? "" : " ");
  box.setSelectionRange(before.length, before.length);
  close();
  look();
}

async function look() {
  const mine = ++asked;
  const cursor = box.selectionStart;
  if (!/[^\s(]$/.test(box.value.slice(0, cursor))) return close();
  try {
    const before = [...box.value.slice(0, cursor)].length;
    const query = new URLSearchParams({ q: box.value, cursor: before });
    const answer = await fetch(`/api/v1/search/complete?${query}`);
    if (mine !== asked || document.activeElement !== box) return;
    close();
    if (!answer.ok) return;
    offers = (await answer.json()).completions;
    if (!offers.length) return;
    list.replaceChildren(...offers.map(item));
    list.hidden = false;
    box.setAttribute("aria-expanded", "true");
  } catch {
    // the server is away: nothing is offered
  }
}

let timer = null;
box?.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(look, 60); });
box?.addEventListener("blur", close);
box?.addEventListener("keydown", (event) => {
  if (list.hidden) return;
  if (event.key === "ArrowDown") choose(chosen + 1);
  else if (event.key === "ArrowUp") choose(chosen < 0 ? offers.length - 1 : chosen - 1);
  else if (event.key === "Tab" && !event.shiftKey) take(Math.max(chosen, 0));
  else if (event.key === "Enter" && chosen >= 0) take(chosen);
  else if (event.key === "Escape") close();
  else return;
  event.preventDefault();
  event.stopPropagation();
});
