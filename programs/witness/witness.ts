import type { IncomingMessage, RequestListener } from 'node:http';
import { equalBytes, fromUtf8 } from '#protocol/bytes';
import { type Checkpoint, parseCheckpoint } from '#protocol/checkpoint';
import { cosign, cosignedMessage } from '#protocol/cosignature';
import { ProtocolError, type ProtocolErrorCode } from '#protocol/errors';
import { verifyConsistency } from '#protocol/merkle';
import { openNote, splitNote, type NoteSigner, type Vkey } from '#protocol/note';
import { parseAddCheckpoint, TLOG_SIZE_TYPE } from '#protocol/tlog-witness';
import { nativeSha256, nativeVerify, type Signer } from '#runtime/crypto/node';
import { BodyRefusedError, readBody } from '#runtime/http/json-body';
import type { Clock } from '#runtime/clock';
import { logRarely, type Logger } from '#runtime/process/log';
import type { CosignedHeads } from './heads.js';

interface Answer {
  status: number;
  body: string;
  type?: string;
}

export interface WitnessOptions {
  signer: Pick<NoteSigner, 'name' | 'keyHash'> & Pick<Signer, 'sign'>;
  /** The keys of each log, by origin. */
  logs: ReadonlyMap<string, readonly Vkey[]>;
  heads: CosignedHeads;
  clock: Clock;
}

const STATUSES: Partial<Record<ProtocolErrorCode, number>> = {
  unknown_signer: 403,
  bad_signature: 403,
};

/**
 * Answers an `add-checkpoint` request of C2SP tlog-witness. Synchronous up to the signature, so that no
 * other request changes the head between the comparison and its replacement.
 */
export async function addCheckpoint(options: WitnessOptions, body: Uint8Array): Promise<Answer> {
  try {
    return await answer(options, body);
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error;
    return { status: STATUSES[error.code] ?? 400, body: `${error.message}\n` };
  }
}

async function answer(
  { signer, logs, heads, clock }: WitnessOptions,
  body: Uint8Array,
): Promise<Answer> {
  const { oldSize, proof, note } = parseAddCheckpoint(fromUtf8(body));
  const [origin = ''] = splitNote(note).text.split('\n');
  const vkeys = logs.get(origin);
  if (vkeys === undefined) return { status: 404, body: 'unknown log\n' };
  const { text } = openNote(note, vkeys, nativeVerify);
  const { size, root } = parseCheckpoint(text, true);
  const latest = storedHead(heads, origin);
  // A lost head must not look like that of a new log, which only an operator adds.
  if (latest === null) return { status: 404, body: 'unknown log\n' };
  if (oldSize > size) return { status: 400, body: `old size ${oldSize} is above size ${size}\n` };
  if (latest.size !== oldSize) {
    return { status: 409, body: `${latest.size}\n`, type: TLOG_SIZE_TYPE };
  }
  if (size === oldSize && !equalBytes(root, latest.root)) {
    return {
      status: 409,
      body: 'the checkpoint has the size of the last cosigned checkpoint, but another root\n',
    };
  }
  const claim = { size1: latest.size, root1: latest.root, size2: size, root2: root, path: proof };
  if (!verifyConsistency(nativeSha256, claim)) {
    return { status: 422, body: 'the checkpoint is not proven to extend the last one\n' };
  }
  // Stores the head durably before it signs: after a crash, this witness must know the heads that it signed.
  heads.store({ origin, size, root });
  const timestamp = Math.floor(clock.now() / 1000);
  const signature = await signer.sign(cosignedMessage(text, timestamp));
  return { status: 200, body: cosign(text, { ...signer, sign: () => signature }, timestamp) };
}

function storedHead(heads: CosignedHeads, origin: string): Checkpoint | null {
  try {
    return heads.latest(origin);
  } catch (cause) {
    // The request is not at fault: the witness signs nothing for this log until an operator repairs the head.
    throw new Error(`the stored head of ${origin} cannot be read`, { cause });
  }
}

/** Limit of a request body, above the largest note with 16 post-quantum signatures (C2SP signed-note). */
const MAX_BODY = 128 * 1024;
const PATH = '/add-checkpoint';

/** Serves C2SP tlog-witness with an empty submission prefix. */
export function witnessHandler(
  options: WitnessOptions,
  log: Logger,
  counted: (status: number) => void,
): RequestListener {
  async function answerTo(req: IncomingMessage): Promise<Answer> {
    if (req.url !== PATH) return { status: 404, body: `POST ${PATH}\n` };
    if (req.method !== 'POST') return { status: 405, body: `POST ${PATH}\n` };
    try {
      return await addCheckpoint(options, await readBody(req, MAX_BODY));
    } catch (error) {
      if (error instanceof BodyRefusedError) {
        return { status: error.code === 'body_too_large' ? 413 : 400, body: `${error.message}\n` };
      }
      logRarely(log, 'error', { err: error }, 'witness: the checkpoint was not cosigned');
      return { status: 500, body: 'the witness cannot use its stored state or its key\n' };
    }
  }

  return (req, res) => {
    void answerTo(req).then(({ status, body, type = 'text/plain; charset=utf-8' }) => {
      counted(status);
      res.writeHead(status, {
        'Content-Type': type,
        'Content-Length': String(Buffer.byteLength(body)),
        'Cache-Control': 'no-store',
        'X-Content-Type-Options': 'nosniff',
        ...(status === 405 && { Allow: 'POST' }),
        // The rest of an unread body would be parsed as a request.
        ...(!req.complete && { Connection: 'close' }),
      });
      res.end(body);
    });
  };
}
