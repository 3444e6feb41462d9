import { SdkError, type RequestHashEnvelope } from '../index.js';
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
  // Without it they would be other bytes than were given out; with it they are for nobody's eyes.
  if (terminal.hidden.isIn(bytes)) {
    throw new SdkError('unexpected_response', 'the answer has the key in it that was sent for it');
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
  else terminal.say(`${out}: ${String(bytes.length)} bytes, sha256 ${envelope.response_hash}`);
}
