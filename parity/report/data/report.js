(function () {
  "use strict";
  var text = document.getElementById("filter");
  var corrupt = document.getElementById("corrupt");
  var count = document.getElementById("count");
  var cards = Array.prototype.slice.call(document.querySelectorAll("article"));
  var words = cards.map(function (card) { return card.textContent.toLowerCase(); });
  function apply() {
    var wanted = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    var shown = 0;
    cards.forEach(function (card, at) {
      var hit = wanted.every(function (word) { return words[at].indexOf(word) >= 0; });
      hit = hit && (!corrupt.checked || card.classList.contains("corrupt"));
      card.classList.toggle("hidden", !hit);
      shown += hit ? 1 : 0;
    });
    count.textContent = shown + " / " + cards.length;
  }
  // A link may carry the filter: report.html#q=garbled
  if (location.hash.indexOf("#q=") === 0) {
    try { text.value = decodeURIComponent(location.hash.slice(3)); } catch (error) { text.value = ""; }
  }
  text.addEventListener("input", apply);
  corrupt.addEventListener("change", apply);
  document.querySelectorAll(".stream .x").forEach(function (token) {
    var box = token.closest(".stream");
    box.scrollTop = Math.max(0, token.offsetTop - box.offsetTop - 60);
  });
  apply();
})();
