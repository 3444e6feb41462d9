import { styleText } from 'node:util';

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
}

type Stream = NodeJS.WriteStream & { fd: 1 | 2 };

export function openTerminal(stdout: Stream, stderr: Stream): Terminal {
  return {
    print: (...parts) => write(stdout, parts),
    printBytes: (bytes) => void stdout.write(bytes),
    printJson: (value) => void stdout.write(`${JSON.stringify(value)}\n`),
    say: (...parts) => write(stderr, parts),
    sayJson: (value) => void stderr.write(`${JSON.stringify(value)}\n`),
    outIsTerminal: stdout.isTTY,
    errorIsTerminal: stderr.isTTY,
  };
}

/** Node leaves the colours out where there is no terminal, and where NO_COLOR is set. */
function write(stream: Stream, parts: readonly Part[]): void {
  const line = parts.map((part) =>
    typeof part === 'string' ? safe(part) : styleText(part.style, safe(part.text), { stream }),
  );
  stream.write(`${line.join('')}\n`);
}

/**
 * Texts come from wherever the proof does: a control character among them could rewrite the screen,
 * and with it the verdict. Line ends are ours, and stay.
 */
function safe(text: string): string {
  return text.replace(/(?!\n)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu, '\ufffd');
}
