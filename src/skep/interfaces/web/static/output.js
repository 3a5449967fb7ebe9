// What a running task writes, as it comes; the newest part of it is kept on the page.
const box = document.getElementById("output");
const MOST = 400000;
const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
let attempt = null;
let length = box.textContent.length;

function bytes(chunk) {
  if (!chunk.base64) return new TextEncoder().encode(chunk.text ?? "");
  return Uint8Array.from(atob(chunk.base64), (letter) => letter.charCodeAt(0));
}

function show(event) {
  const chunk = JSON.parse(event.data);
  const atEnd = box.scrollTop + box.clientHeight >= box.scrollHeight - 8;
  if (attempt !== null && chunk.attempt !== attempt) box.replaceChildren();
  attempt = chunk.attempt;
  const piece = document.createElement("span");
  piece.className = chunk.stream;
  piece.textContent = decoders[chunk.stream].decode(bytes(chunk), { stream: true });
  box.append(piece);
  length += piece.textContent.length;
  while (length > MOST && box.childElementCount > 1) {
    length -= box.firstElementChild.textContent.length;
    box.firstElementChild.remove();
  }
  if (atEnd) box.scrollTop = box.scrollHeight;
}

const stream = new EventSource(box.dataset.follow);
stream.onmessage = show;
stream.addEventListener("ended", () => stream.close());
box.scrollTop = box.scrollHeight;
