import { afterEach, describe, expect, it, vi } from 'vitest';
import { showsBar } from '#sdk/cli/progress';
import { openTerminal, type Terminal } from '#sdk/cli/terminal';
import { svc } from '../fixtures/svc.js';

/** Streams that keep what is written to them. */
function open(isTTY: boolean): { terminal: Terminal; out: () => string; err: () => string } {
  const written = { out: '', err: '' };
  const stream = (name: 'out' | 'err'): never =>
    ({
      isTTY,
      write: (text: string | Uint8Array) => {
        written[name] += typeof text === 'string' ? text : Buffer.from(text).toString();
      },
    }) as never;
  const terminal = openTerminal(stream('out'), stream('err'));
  return { terminal, out: () => written.out, err: () => written.err };
}

const HOSTILE = 'no\nauthentic, included\u001b[2J\u009b31m\u202e\u2028\r\u007f\u{e0001}';
const CONTROL = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e\u2028\u{e0001}]/u;

afterEach(() => {
  vi.unstubAllEnvs();
});

describe('what a hostile answer says', () => {
  it.each([true, false])('neither moves the cursor nor begins a line, terminal %s', (isTTY) => {
    const { terminal, out, err } = open(isTTY);
    terminal.print('a ', HOSTILE);
    terminal.say(HOSTILE);
    for (const line of [out(), err()]) {
      expect(line.match(/\n/g)).toHaveLength(1);
      expect(line).not.toMatch(CONTROL);
      expect(line).toContain('authentic');
    }
  });

  it('is escaped in JSON, which stays the same document', () => {
    const { terminal, out, err } = open(true);
    const value = { [HOSTILE]: HOSTILE, plain: 'réserver ✈' };
    terminal.printJson(value);
    terminal.sayJson(value);
    for (const text of [out(), err()]) {
      expect(text).not.toMatch(CONTROL);
      expect(text.match(/\n/g)).toHaveLength(1);
      expect(text).toContain('réserver ✈');
      expect(JSON.parse(text)).toEqual(value);
    }
  });

  it('is shown harmless when it is bytes, and is byte for byte where nobody looks', () => {
    const bytes = Buffer.from(`first\n${HOSTILE.replaceAll('\n', '')}\n`);
    const shown = open(true);
    shown.terminal.printBytes(bytes);
    expect(shown.out()).not.toMatch(CONTROL);
    expect(shown.out()).toMatch(/^first\n.*authentic.*\n$/u);
    const kept = open(false);
    kept.terminal.printBytes(bytes);
    expect(kept.out()).toBe(bytes.toString());
  });
});

describe('a key that is said back', () => {
  const key = 'svc_sk_abcdefghij23_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA1ibZpl';
  const odd = 'a"key\\of-no-form';

  it.each([true, false])('is left out of every line and every document, terminal %s', (isTTY) => {
    const { terminal, out, err } = open(isTTY);
    terminal.hidden.hide(odd);
    for (const one of [key, key.slice(0, 40), odd]) {
      const text = `before ${one} after`;
      const value = { [text]: [text, { deep: text, none: null, count: 1 }] };
      // Node colours nothing that goes to a stream which is none.
      const coloured = isTTY ? text : ({ style: 'red', text } as const);
      terminal.print(text, coloured);
      terminal.say(coloured, text);
      terminal.printJson(value);
      terminal.sayJson(value);
      const hidden = 'before svc_sk_… after';
      const said = { [hidden]: [hidden, { deep: hidden, none: null, count: 1 }] };
      for (const last of [out(), err()]) {
        expect(JSON.parse(last.trimEnd().split('\n').at(-1)!)).toEqual(said);
      }
    }
    for (const part of [key.slice(7), key.slice(20, 40), odd, 'of-no-form']) {
      expect(out() + err()).not.toContain(part);
    }
    expect((out() + err()).match(/before svc_sk_… after/g)).toHaveLength(3 * (2 + 2 + 3 + 3));
  });

  it('is left out of bytes that are shown; those that are kept have only what is no key of ours', () => {
    const [shown, kept] = [open(true), open(false)];
    for (const { terminal } of [shown, kept]) terminal.printBytes(Buffer.from(`a ${key}\nb`));
    expect(shown.out()).toBe('a svc_sk_…\nb');
    expect(kept.out()).toBe(`a ${key}\nb`);
    expect(kept.terminal.hidden.isIn(Buffer.from(key))).toBe(false);
    kept.terminal.hidden.hide(key);
    expect(kept.terminal.hidden.isIn(Buffer.from(`a ${key}`))).toBe(true);
  });
});

describe('colours', () => {
  it('stay out of files, also where FORCE_COLOR is set', () => {
    vi.stubEnv('FORCE_COLOR', '1');
    const { terminal, out } = open(false);
    terminal.print({ style: 'green', text: 'authentic' });
    expect(out()).toBe('authentic\n');
  });
});

describe('the progress bar', () => {
  const on = (outIsTerminal: boolean, errorIsTerminal: boolean, json = false, quiet = false) =>
    showsBar({ outIsTerminal, errorIsTerminal }, { quiet, json });

  it('is on a terminal that hears the errors, and never among JSON', () => {
    expect([on(true, true), on(false, true), on(false, true, true)]).not.toContain(false);
    expect([on(true, true, true), on(true, false), on(true, true, false, true)]).not.toContain(
      true,
    );
  });
});

describe('the exit code', () => {
  it('is that of what happened, when nobody hears why', async () => {
    expect(await svc(['frobnicate'], { unheard: true })).toMatchObject({ code: 2 });
    const args = ['lookup', 'a', '--public-url', 'http://127.0.0.1:1', '--timeout', '0.2'];
    expect(await svc(args, { unheard: true })).toMatchObject({ code: 3 });
  });

  it('is that of an interrupt, and no verdict, while the input is still to come', async () => {
    const began = performance.now();
    await svc(['--help']);
    // Long after it runs, on this machine as it is at the moment.
    const later = 500 + 4 * (performance.now() - began);
    const started = ({ interrupt }: { interrupt(): void }): void => {
      setTimeout(interrupt, later);
    };
    const run = await svc(['verify', '-', '--offline', '--json'], { stdin: null, started });
    expect(run).toMatchObject({ code: 130, stdout: '' });
    expect(JSON.parse(run.stderr)).toMatchObject({ error: { code: 'aborted' }, exit_code: 130 });
  });
});
