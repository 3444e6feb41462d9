const STORED = 'svc-log-vkey';
const LOAD_MS = 15_000;
const NOT_PROVEN =
  'The verdict on this page is not proven. Do not rely on it; look up the identifier with another tool or server.';

const section = document.getElementById('evidence');
if (section !== null) void showEvidence(section);

async function showEvidence(section: HTMLElement): Promise<void> {
  const { vkey: named = '', answer = '', generation } = section.dataset;
  section.hidden = false;
  const pinned = readPin();
  if (pinned === null) {
    report('status', 'Not verified in your browser: no key of the log is pinned here.');
    showForm('pin', (form) =>
      localStorage.setItem(STORED, form.querySelector('input')!.value.trim()),
    );
    return;
  }
  showForm('unpin', () => localStorage.removeItem(STORED));
  const key = `key ${nameOf(pinned)}`;
  report('status', `Verifying with ${key}…`);
  try {
    if (pinned !== named) {
      const why = 'the log changed its key, or this address now leads to a different server';
      throw new Error(`this server names the key ${nameOf(named)} instead: ${why}`);
    }
    const status = document.querySelector('.verdict .status')?.textContent ?? '';
    const { proveVerdict } = await loadProver();
    const shown = { answer, status, generation: Number(generation) };
    const { proved, trusted } = await proveVerdict(pinned, shown);
    report('status', `Verified in your browser with ${key}: ${proved}`, trusted);
  } catch (error) {
    markUnproven();
    const why = error instanceof Error ? error.message : String(error);
    report('alert', `Not verified in your browser with ${key}: ${why}.`, NOT_PROVEN);
  }
}

/** Limits the time: a stalled download would leave the verdict of the page unmarked. */
async function loadProver() {
  const stalled = new Promise<never>((_, reject) => setTimeout(reject, LOAD_MS));
  try {
    return await Promise.race([import('./prove.js'), stalled]);
  } catch (cause) {
    throw new Error('the script of the check cannot be loaded; reload the page', { cause });
  }
}

/** Browsers throw when their settings forbid storage; then no key is pinned. */
function readPin(): string | null {
  try {
    return localStorage.getItem(STORED);
  } catch {
    return null;
  }
}

/** Reloads the page after a change, because the pin affects every part of the page. */
function showForm(id: string, change: (form: HTMLFormElement) => void): void {
  const form = document.getElementById(id) as HTMLFormElement;
  form.hidden = false;
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    try {
      change(form);
      location.reload();
    } catch {
      report('alert', 'This browser stores no key: its settings forbid it.');
    }
  });
}

/** The name and the hash of a C2SP vkey. */
function nameOf(vkey: string): string {
  return vkey.split('+').slice(0, 2).join('+');
}

/** Keeps the boxes: screen readers announce a status only in a region that was there before its text. */
function report(role: 'status' | 'alert', ...lines: string[]): void {
  const paragraphs = lines.map((line) => {
    const paragraph = document.createElement('p');
    paragraph.textContent = line;
    return paragraph;
  });
  const result = document.getElementById('evidence-result')!;
  // During an upgrade, an older server may have sent the page, which then lacks the boxes.
  if (result.childElementCount === 0)
    result.innerHTML = '<div role="status"></div><div role="alert"></div>';
  for (const box of result.children) {
    box.replaceChildren(...(box.getAttribute('role') === role ? paragraphs : []));
  }
}

/** Adds "not proven" as text: the class `unproven` only removes colour and symbol of the verdict. */
function markUnproven(): void {
  document.title = `Not proven: ${document.title}`;
  document.getElementById('main')!.classList.add('unproven');
  const tag = document.createElement('span');
  tag.className = 'tag';
  tag.textContent = 'Not proven';
  document.getElementById('verdict')!.prepend(tag, ' ');
  for (const value of document.querySelectorAll('.verdict .status, .verdict dd > strong')) {
    value.append(' (not proven)');
  }
}
