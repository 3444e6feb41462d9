/** The only script of the page: it enables the copy buttons. */
export const SCRIPT = `'use strict';
(() => {
  const live = document.getElementById('live');

  // navigator.clipboard exists only in secure contexts.
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
