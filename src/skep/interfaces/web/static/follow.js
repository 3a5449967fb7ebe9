// Messages that come in while the page is open, newest first. Without scripts the page shows them when loaded anew.
const box = document.querySelector("[data-follow]");
const list = document.querySelector(".messages");
const shape = document.getElementById("message").content;
const button = box.querySelector("button");
const status = box.querySelector("[role=status]");
const MOST = 200;
const CUT = 4000;
let stream = null;
let next = null;

function card(message) {
  const article = shape.cloneNode(true).firstElementChild;
  article.id = `m${message.offset}`;
  const link = article.querySelector("a");
  link.textContent = message.offset;
  link.href = `?partition=${message.partition}&offset=${message.offset}`;
  const badge = article.querySelector(".badge");
  if (message.key) badge.textContent = message.key; else badge.remove();
  const time = article.querySelector("time");
  time.textContent = new Date(message.at * 1000).toLocaleTimeString();
  time.title = new Date(message.at * 1000).toISOString();
  const headers = article.querySelector("dl");
  for (const [name, value] of Object.entries(message.headers)) {
    headers.append(element("dt", name), element("dd", value));
  }
  if (!headers.children.length) headers.remove();
  const text = typeof message.body === "string" ? message.body : JSON.stringify(message.body, null, 2);
  article.querySelector("pre").textContent = text.length > CUT ? text.slice(0, CUT) + "…" : text;
  return article;
}

function element(name, text) {
  const made = document.createElement(name);
  made.textContent = text;
  return made;
}

function show(event) {
  const message = JSON.parse(event.data);
  next = message.offset + 1;
  document.querySelector(".empty")?.remove();
  list.prepend(card(message));
  while (list.children.length > MOST) list.lastElementChild.remove();
}

function start() {
  const url = new URL(box.dataset.follow, location.href);
  if (next !== null) url.searchParams.set("offset", next);
  stream = new EventSource(url);
  stream.onopen = () => { status.textContent = "following"; };
  stream.onmessage = show;
  stream.onerror = () => {
    status.textContent = stream.readyState === EventSource.CLOSED ? "ended by the server" : "coming back…";
    if (stream.readyState === EventSource.CLOSED) stop();
  };
}

function stop() {
  stream.close();
  stream = null;
  button.textContent = "Follow";
  button.setAttribute("aria-pressed", "false");
}

button.addEventListener("click", () => {
  if (stream) {
    stop();
    status.textContent = "";
    return;
  }
  button.textContent = "Pause";
  button.setAttribute("aria-pressed", "true");
  start();
});
box.hidden = false;
