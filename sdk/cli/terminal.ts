import { styleText } from 'node:util';
import { fromUtf8Lossy } from '../../protocol/bytes.js';
import { createHidden, type Hidden } from './hidden.js';

export type Style = 'green' | 'red' | 'yellow' | 'dim' | 'bold';
export type Part = string | { style: Style; text: string };

/** Where a command speaks: results on standard output, everything else on standard error. */
export interface Terminal {
  print(...parts: Part[]): void;
  printBytes(bytes: Uint8Array): void;
  printJson(value: unknown): void;
  say(...parts: Part[]): void;
  sayJson(value: unknown): void;
  outIsTerminal: boolean;
  errorIsTerminal: boolean;
  /** What is left out of all that is printed; bytes alone go out whole where nobody looks. */
  hidden: Hidden;
}

type Stream = NodeJS.WriteStream & { fd: 1 | 2 };

export function openTerminal(stdout: Stream, stderr: Stream): Terminal {
  const hidden = createHidden();
  return {
    print: (...parts) => write(stdout, parts, hidden),
    printBytes: (bytes) => void stdout.write(stdout.isTTY ? shown(bytes, hidden) : bytes),
    printJson: (value) => void stdout.write(`${json(hidden.withoutIn(value))}\n`),
    say: (...parts) => write(stderr, parts, hidden),
    sayJson: (value) => void stderr.write(`${json(hidden.withoutIn(value))}\n`),
    outIsTerminal: stdout.isTTY,
    errorIsTerminal: stderr.isTTY,
    hidden,
  };
}

/** Not even FORCE_COLOR brings colours into a file; where NO_COLOR is set, Node leaves them out. */
function write(stream: Stream, parts: readonly Part[], hidden: Hidden): void {
  const line = parts.map((part) => {
    if (typeof part === 'string') return safe(hidden.without(part));
    const text = safe(hidden.without(part.text));
    return stream.isTTY ? styleText(part.style, text, { stream }) : text;
  });
  stream.write(`${line.join('')}\n`);
}

const UNSAFE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;

/**
 * Texts come from wherever the proof does: a control character among them could rewrite the screen,
 * and with it the verdict, and a line end begin a line that looks like ours.
 */
function safe(text: string): string {
  return text.replace(UNSAFE, '\ufffd');
}

/** The same document: JSON may have any character escaped, and leaves most of these as they are. */
function json(value: unknown): string {
  return JSON.stringify(value).replace(UNSAFE, (character) =>
    Array.from({ length: character.length }, (_, at) => character.charCodeAt(at))
      .map((unit) => `\\u${unit.toString(16).padStart(4, '0')}`)
      .join(''),
  );
}

/** A file on a screen; its own line ends stay. */
function shown(bytes: Uint8Array, hidden: Hidden): string {
  return hidden.without(fromUtf8Lossy(bytes)).split('\n').map(safe).join('\n');
}
