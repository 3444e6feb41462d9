import type { RequestHashEnvelope } from '../index.js';
import { writeOutput } from './output-file.js';
import type { Terminal } from './terminal.js';

/** Puts what was fetched where it was asked for, and says under which hashes. */
export async function deliver(
  terminal: Terminal,
  {
    bytes,
    out,
    json,
    envelope,
  }: {
    bytes: Uint8Array;
    out: string | undefined;
    json: boolean;
    envelope: RequestHashEnvelope<unknown>;
  },
): Promise<void> {
  if (out === undefined) {
    if (json && !(envelope.response instanceof Uint8Array)) terminal.printJson(envelope);
    else terminal.printBytes(bytes);
    return;
  }
  await writeOutput(out, bytes);
  const { request_hash, canonical_request, response_hash, request_id } = envelope;
  const hashes = { request_hash, canonical_request, response_hash, request_id };
  if (json) terminal.printJson({ file: out, ...hashes });
  else terminal.say(`${out}: ${String(bytes.length)} bytes, sha256 ${envelope.response_hash}`);
}
