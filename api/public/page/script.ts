/** The page's one script: it shows the copy buttons, which are of no use without it. */
export const SCRIPT = `'use strict';
(() => {
  const live = document.getElementById('live');

  // The clipboard's own interface is for secure contexts only.
  const copyBySelection = (text) => {
    const area = document.createElement('textarea');
    area.value = text;
    area.className = 'unseen';
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    return done;
  };

  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      return copyBySelection(text);
    }
  };

  for (const button of document.querySelectorAll('button.copy')) {
    button.hidden = false;
    const label = button.firstChild;
    button.addEventListener('click', async () => {
      const done = await copy(button.dataset.copy);
      button.focus();
      label.textContent = done ? 'Copied ' : 'Not copied ';
      live.textContent = button.dataset.what + (done ? ' copied' : ' could not be copied');
      setTimeout(() => {
        label.textContent = 'Copy ';
        live.textContent = '';
      }, 2000);
    });
  }
})();
`;
