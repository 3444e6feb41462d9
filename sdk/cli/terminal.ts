import { styleText } from 'node:util';
import { fromUtf8Lossy } from '../../protocol/bytes.js';
import { INVISIBLE } from '../../protocol/text.js';
import type { SdkErrorCode } from '../errors.js';

/** Exit codes, on which scripts branch. Only 0 means that a script may continue. */
export const EXIT = {
  /** Valid, admitted, included, authentic or matching. */
  success: 0,
  negative: 1,
  /** The command, a setting, the input or the output file is wrong. No request changed anything. */
  usage: 2,
  /** Service unreachable, request rejected, no key pinned, or proof not verified yet. */
  undecided: 3,
  /** A proven policy denial, or a required approval. */
  denied: 4,
  interrupted: 130,
} as const;
export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

const BY_ERROR: Partial<Record<SdkErrorCode, ExitCode>> = {
  invalid_input: EXIT.usage,
  unusable_pin: EXIT.usage,
  evidence_rejected: EXIT.negative,
  policy_denied: EXIT.denied,
  approval_required: EXIT.denied,
  aborted: EXIT.interrupted,
};

export function exitCodeOf(code: SdkErrorCode): ExitCode {
  return BY_ERROR[code] ?? EXIT.undecided;
}

/** What a proof states: the effect of a decision, or a report, which permits nothing. */
export type Stated = 'ADMIT' | 'DENY' | 'REQUIRE_APPROVAL' | 'REPORT';

/**
 * A valid proof that permits nothing has its own exit code: on 0, scripts would run the action.
 */
export function verdictExit(
  status: string,
  canAssertValidity: boolean,
  stated: Stated | undefined,
): ExitCode {
  if (canAssertValidity) {
    return stated === undefined || stated === 'ADMIT' ? EXIT.success : EXIT.denied;
  }
  return status === 'BACKEND_LOOKUP_REQUIRED' ? EXIT.undecided : EXIT.negative;
}

export type Style = 'green' | 'red' | 'yellow' | 'dim';
export type Part = string | { style: Style; text: string };

type Stream = NodeJS.WriteStream & { fd: 1 | 2 };

export type Terminal = ReturnType<typeof openTerminal>;

/** Results go to standard output, everything else to standard error. */
export function openTerminal(stdout: Stream, stderr: Stream) {
  const redactor = createRedactor();
  return {
    print: (...parts: Part[]) => writeLine(stdout, parts, redactor),
    printBytes: (bytes: Uint8Array) =>
      void stdout.write(stdout.isTTY ? shown(bytes, redactor) : bytes),
    printJson: (value: unknown) => void stdout.write(`${safeJson(redactor.redactJson(value))}\n`),
    printError: (...parts: Part[]) => writeLine(stderr, parts, redactor),
    printErrorJson: (value: unknown) =>
      void stderr.write(`${safeJson(redactor.redactJson(value))}\n`),
    outIsTerminal: stdout.isTTY,
    errorIsTerminal: stderr.isTTY,
    /** Width of the terminal; files and pipes do not wrap. */
    columns: stdout.isTTY ? stdout.columns || 80 : Infinity,
    /** Redacts all output except bytes that go to a file or a pipe. */
    redactor,
  };
}

const STYLES: Record<ExitCode, Style> = {
  [EXIT.success]: 'green',
  [EXIT.negative]: 'red',
  [EXIT.usage]: 'red',
  [EXIT.undecided]: 'yellow',
  [EXIT.denied]: 'red',
  [EXIT.interrupted]: 'yellow',
};

export function styled(code: ExitCode, text: string): Part {
  return { style: STYLES[code], text };
}

export const LABEL_WIDTH = 13;

export function row(label: string, text: string): Part[] {
  return [{ style: 'dim', text: `${label.padEnd(LABEL_WIDTH)} ` }, text];
}

/** Writes a line, without colours outside a terminal, even for FORCE_COLOR. Node honours NO_COLOR. */
function writeLine(stream: Stream, parts: readonly Part[], redactor: Redactor): void {
  const line = parts.map((part) => {
    if (typeof part === 'string') return safe(redactor.redact(part));
    const text = safe(redactor.redact(part.text));
    return stream.isTTY ? styleText(part.style, text, { stream }) : text;
  });
  stream.write(`${line.join('')}\n`);
}

/**
 * Replaces invisible characters: a proof contains texts of an attacker's choice, in which a control character could
 * overwrite the printed verdict, and a line break could forge a line of this program.
 */
function safe(text: string): string {
  return text.replace(INVISIBLE, '\ufffd');
}

/**
 * Escapes unsafe characters, which changes no value: JSON allows any character as an escape. Line breaks
 * occur only between members, in indented JSON.
 */
export function safeJson(value: unknown, indent?: number): string {
  return JSON.stringify(value, null, indent).replace(INVISIBLE, (character) => {
    if (character === '\n') return character;
    return Array.from({ length: character.length }, (_, at) => character.charCodeAt(at))
      .map((unit) => `\\u${unit.toString(16).padStart(4, '0')}`)
      .join('');
  });
}

/** Makes bytes safe for a screen; keeps their line breaks. */
function shown(bytes: Uint8Array, redactor: Redactor): string {
  return redactor.redact(fromUtf8Lossy(bytes)).split('\n').map(safe).join('\n');
}

/** A key of the service, or the beginning of one. */
const KEYS = /svc_sk_[A-Za-z0-9_-]+/gi;
const REDACTED = 'svc_sk_…';
/** Minimum length of a key to redact: shorter texts are not keys, and could occur anywhere. */
const MIN_KEY_LENGTH = 8;

type Redactor = ReturnType<typeof createRedactor>;

/** Redacts keys: a server may echo a request, and output ends up in logs and tickets. */
function createRedactor() {
  const sent = new Set<string>();
  const redact = (text: string): string =>
    [...sent].reduce((rest, key) => rest.replaceAll(key, REDACTED), text).replace(KEYS, REDACTED);
  const redactJson = (value: unknown): unknown => {
    if (typeof value === 'string') return redact(value);
    if (typeof value !== 'object' || value === null) return value;
    if (Array.isArray(value)) return value.map(redactJson);
    const members = Object.entries(value).map(([name, one]) => [redact(name), redactJson(one)]);
    return Object.fromEntries(members) as object;
  };
  return {
    /** Also redacts this key or token, whatever its form. */
    protect: (key: string) => {
      if (key.length >= MIN_KEY_LENGTH) sent.add(key);
    },
    redact,
    redactJson,
    /** Whether bytes contain a key of this process. Any other text that looks like a key may belong to the document. */
    containsKey: (bytes: Uint8Array) => [...sent].some((key) => Buffer.from(bytes).includes(key)),
  };
}
