import { Option } from 'commander';
import { randomUUID } from 'node:crypto';
import { open, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { fromUtf8 } from '../../protocol/bytes.js';
import { isObject, parseStrict, type JsonValue } from '../../protocol/json.js';
import { canonicalHash, SdkError, type RequestHashEnvelope } from '../index.js';
import { UsageError, type Invocation } from './config.js';

export const outOption = new Option('-o, --out <FILE>', 'write to FILE instead of standard output');

export const inputName = (file: string): string => (file === '-' ? 'standard input' : file);

export async function readInput(file: string): Promise<Uint8Array> {
  try {
    return file === '-' ? await buffer(process.stdin) : await readFile(file);
  } catch (cause) {
    throw new UsageError(`${inputName(file)} cannot be read: ${errno(cause)}`, { cause });
  }
}

/** The limit of Node for the length of a string. */
const MAX_CHARACTERS = 2 ** 29 - 24;

export async function readText(file: string): Promise<string> {
  const bytes = await readInput(file);
  try {
    return fromUtf8(bytes);
  } catch (cause) {
    const fault = bytes.length > MAX_CHARACTERS ? 'exceeds 512 MiB: split it' : 'is not UTF-8';
    throw new UsageError(`${inputName(file)} ${fault}`, { cause });
  }
}

/** Reads JSON strictly: two parsers must not disagree about its meaning. */
export async function readJson(file: string): Promise<JsonValue> {
  const bytes = await readInput(file);
  try {
    return parseStrict(bytes);
  } catch (cause) {
    throw new UsageError(`${inputName(file)} is not JSON: ${(cause as Error).message}`, { cause });
  }
}

/** The hash of the JSON value in a file: the form of `arguments_hash` and `result_hash`. */
export async function hashOfFile(file: string): Promise<string> {
  return canonicalHash(await readJson(file));
}

export async function readDocument(file: string): Promise<{ [key: string]: JsonValue }> {
  const value = await readJson(file);
  if (!isObject(value)) throw new UsageError(`${inputName(file)} is not a JSON object`);
  return value;
}

/** Sends the export in a file. An error about the input names the file besides the faulty member. */
export async function sendExport<T>(
  file: string,
  send: (document: never) => Promise<T>,
): Promise<T> {
  const found = file === '-' ? null : await stat(file).catch(() => null);
  if (file !== '-' && (found === null || found.isDirectory())) {
    throw new UsageError(`${file} is neither a proof id nor a file`);
  }
  const document = await readDocument(file);
  try {
    return await send(document as never);
  } catch (cause) {
    if (!(cause instanceof SdkError) || cause.code !== 'invalid_input') throw cause;
    const message = `${inputName(file)} is not an output of \`svc export\`: ${cause.message}`;
    throw new UsageError(message, { cause });
  }
}

/** Writes a response to a file or to standard output, and prints the hashes that identify it. */
export async function writeResponse(
  { terminal, json, options: { out } }: Invocation<{ out?: string }>,
  bytes: Uint8Array,
  envelope: RequestHashEnvelope<unknown>,
): Promise<void> {
  // Rejects the response: unchanged bytes would disclose the key, redacted bytes would be a different document.
  if (terminal.redactor.containsKey(bytes)) {
    throw new SdkError('unexpected_response', 'the response contains the API key of the request');
  }
  if (out === undefined) {
    if (json && !(envelope.response instanceof Uint8Array)) terminal.printJson(envelope);
    else terminal.printBytes(bytes);
    return;
  }
  await writeOutput(out, bytes);
  const { request_hash, canonical_request, response_hash, request_id } = envelope;
  const hashes = { request_hash, canonical_request, response_hash, request_id };
  if (json) terminal.printJson({ file: out, ...hashes });
  else terminal.printError(`${out}: ${String(bytes.length)} bytes, sha256 ${response_hash}`);
}

/**
 * Writes the whole file or nothing, also after a power loss: half a proof looks like a forged one. A replaced file,
 * which may contain secrets, keeps its mode.
 */
export async function writeOutput(file: string, bytes: Uint8Array): Promise<void> {
  const unfinished = `${file}.${randomUUID()}.part`;
  try {
    const found = await stat(file).catch(() => null);
    // A rename would remove a device or a pipe, such as /dev/null. /dev/stdout may be a file to which a shell appends.
    if (found?.isFile() === false || resolve(file).startsWith('/dev/')) {
      return await writeFile(file, bytes, { flag: 'a' });
    }
    const mode = (found?.mode ?? 0o666) & 0o777;
    await writeFile(unfinished, bytes, { flag: 'wx', mode, flush: true });
    await rename(unfinished, file);
  } catch (cause) {
    await rm(unfinished, { force: true }).catch(() => undefined);
    throw new UsageError(`${file} cannot be written: ${errno(cause)}`, { cause });
  }
}

export async function createFile(file: string, text: string, mode?: number): Promise<void> {
  try {
    const created = await open(file, 'wx', mode);
    try {
      await created
        .writeFile(text)
        .then(() => created.sync())
        .finally(() => created.close());
    } catch (cause) {
      // Part of a file would prevent the next attempt.
      await rm(file, { force: true }).catch(() => undefined);
      throw cause;
    }
  } catch (cause) {
    throw new UsageError(`${file} cannot be created: ${errno(cause)}`, { cause });
  }
}

export function errno(cause: unknown): string {
  return (cause as NodeJS.ErrnoException).code ?? 'unknown error';
}
