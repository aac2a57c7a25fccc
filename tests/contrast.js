// The texts of a page whose contrast with what is behind them is below 4.5 : 1 (WCAG 2, level AA).
() => {
  const rgb = (text) => (text.match(/[\d.]+/g) ?? []).map(Number);
  const light = ([r, g, b]) =>
    [r, g, b]
      .map((c) => c / 255)
      .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
      .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (one) => {
    for (; one; one = one.parentElement) {
      const colour = rgb(getComputedStyle(one).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const poor = [];
  for (const one of document.querySelectorAll("body *")) {
    if (!one.checkVisibility() || ![...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
      continue;
    if (one.closest(".away, .scale, option")) continue;
    const [over, under] = [light(rgb(getComputedStyle(one).color)), light(behind(one))].sort((a, b) => b - a);
    const ratio = (over + 0.05) / (under + 0.05);
    if (ratio < 4.5)
      poor.push(`${one.localName}.${one.className} ${one.textContent.trim().slice(0, 20)} ${ratio.toFixed(2)}`);
  }
  return poor;
};
