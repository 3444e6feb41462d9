import { afterEach, describe, expect, it, vi } from 'vitest';
import { openTerminal, type Terminal } from '#sdk/cli/terminal';

/** A terminal whose streams keep the output. */
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

const HOSTILE = 'no\nauthentic, included\u001b[2J\u009b31m\u202e\u3164\u2028\r\u007f\u{e0001}';
const CONTROL = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e\u3164\u2028\u{e0001}]/u;

afterEach(() => {
  vi.unstubAllEnvs();
});

describe('openTerminal', () => {
  it('prints untrusted text on one line without control characters', () => {
    const { terminal, out, err } = open(true);
    terminal.print('a ', HOSTILE);
    terminal.printError(HOSTILE);
    for (const line of [out(), err()]) {
      expect(line.match(/\n/g)).toHaveLength(1);
      expect(line).not.toMatch(CONTROL);
      expect(line).toContain('authentic');
    }
  });

  it('escapes control characters in JSON, and the JSON value is unchanged', () => {
    const { terminal, out } = open(true);
    const value = { [HOSTILE]: HOSTILE, plain: 'réserver ✈' };
    terminal.printJson(value);
    expect(out()).not.toMatch(CONTROL);
    expect(out().match(/\n/g)).toHaveLength(1);
    expect(out()).toContain('réserver ✈');
    expect(JSON.parse(out())).toEqual(value);
  });

  it('replaces control characters in bytes on a screen, but not in a pipe', () => {
    const bytes = Buffer.from(`first\n${HOSTILE.replaceAll('\n', '')}\n`);
    const [screen, pipe] = [open(true), open(false)];
    for (const { terminal } of [screen, pipe]) terminal.printBytes(bytes);
    expect(screen.out()).not.toMatch(CONTROL);
    expect(screen.out()).toMatch(/^first\n.*authentic.*\n$/u);
    expect(pipe.out()).toBe(bytes.toString());
  });
});

describe('terminal redactor', () => {
  const key = 'svc_sk_abcdefghij23_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA1ibZpl';
  const unusual = 'a"key\\of-no-form';

  it.each([true, false])('removes API keys from lines and documents when isTTY is %s', (isTTY) => {
    const { terminal, out, err } = open(isTTY);
    terminal.redactor.protect(unusual);
    terminal.redactor.protect('another-secret');
    for (const one of [key, key.slice(0, 40), unusual]) {
      const text = `before ${one} after`;
      const value = { [text]: [text, { deep: text, none: null, count: 1 }] };
      // Node cannot print colours to this stream, because it is not a real terminal.
      const part = isTTY ? text : ({ style: 'red', text } as const);
      terminal.print(text, part);
      terminal.printError(part, text);
      terminal.printJson(value);
      terminal.printErrorJson(value);
      const redacted = 'before svc_sk_… after';
      const expected = { [redacted]: [redacted, { deep: redacted, none: null, count: 1 }] };
      for (const output of [out(), err()]) {
        expect(JSON.parse(output.trimEnd().split('\n').at(-1)!)).toEqual(expected);
      }
    }
    for (const part of [key.slice(7), key.slice(20, 40), unusual, 'of-no-form']) {
      expect(out() + err()).not.toContain(part);
    }
    expect((out() + err()).match(/before svc_sk_… after/g)).toHaveLength(3 * (2 + 2 + 3 + 3));
  });

  it('removes API keys from bytes on a screen, and only detects the configured key in bytes for a pipe', () => {
    const [screen, pipe] = [open(true), open(false)];
    for (const { terminal } of [screen, pipe]) terminal.printBytes(Buffer.from(`a ${key}\nb`));
    expect(screen.out()).toBe('a svc_sk_…\nb');
    expect(pipe.out()).toBe(`a ${key}\nb`);
    const { redactor } = pipe.terminal;
    expect(redactor.containsKey(Buffer.from(key))).toBe(false);
    redactor.protect(key);
    expect(redactor.containsKey(Buffer.from(`a ${key}`))).toBe(true);
  });
});
