(function () {
  "use strict";
  // The first cards are in the page; the others are packed, and drawn when somebody gets to them.
  var STEP = 50;
  var list = document.getElementById("cards");
  var text = document.getElementById("filter");
  var corrupt = document.getElementById("corrupt");
  var count = document.getElementById("count");
  var next = document.getElementById("next");
  var packed = document.getElementById("packed");
  var cards = Array.prototype.map.call(list.children, function (element) {
    return { element: element, bad: element.classList.contains("corrupt") };
  });
  var hits = [];
  var drawn = 0;
  function wordsOf(card) {
    if (card.words === undefined) {
      var shown = card.element ? card.element.textContent : card.html.replace(/<[^>]*>/g, " ");
      card.words = shown.toLowerCase();
    }
    return card.words;
  }
  function elementOf(card) {
    if (!card.element) {
      var holder = document.createElement("template");
      holder.innerHTML = card.html;
      card.element = holder.content.firstElementChild;
    }
    return card.element;
  }
  function scrolled(card) {
    card.querySelectorAll(".stream .x").forEach(function (token) {
      var box = token.closest(".stream");
      box.scrollTop = Math.max(0, token.offsetTop - box.offsetTop - 60);
    });
  }
  function draw(number) {
    var stop = Math.min(hits.length, drawn + number);
    for (; drawn < stop; drawn += 1) {
      var element = elementOf(hits[drawn]);
      list.appendChild(element);
      scrolled(element);
    }
    next.hidden = drawn >= hits.length;
  }
  function apply() {
    var wanted = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    hits = cards.filter(function (card) {
      if (corrupt.checked && !card.bad) { return false; }
      return wanted.every(function (word) { return wordsOf(card).indexOf(word) >= 0; });
    });
    list.replaceChildren();
    drawn = 0;
    draw(STEP);
    count.textContent = hits.length + " / " + cards.length;
  }
  function unpack() {
    var bytes = Uint8Array.from(atob(packed.content.textContent), function (one) { return one.charCodeAt(0); });
    var stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).json().then(function (more) {
      more.forEach(function (one) { cards.push({ html: one[0], bad: Boolean(one[1]) }); });
      apply();
    });
  }
  // A link may carry the filter: report.html#q=garbled
  if (location.hash.indexOf("#q=") === 0) {
    try { text.value = decodeURIComponent(location.hash.slice(3)); } catch (error) { text.value = ""; }
  }
  text.addEventListener("input", apply);
  corrupt.addEventListener("change", apply);
  next.addEventListener("click", function () { draw(STEP); });
  new IntersectionObserver(function (seen) {
    if (seen.some(function (one) { return one.isIntersecting; })) { draw(STEP); }
  }, { rootMargin: "600px" }).observe(next);
  addEventListener("beforeprint", function () {
    document.querySelectorAll("details").forEach(function (one) { one.open = true; });
  });
  apply();
  if (packed) { setTimeout(unpack, 0); }
})();
