import { createPublicKey, hash } from 'node:crypto';
import serialize from 'canonicalize';
import { bulkVerification } from '#runtime/crypto/sodium';
import { announce, Ahead, listenTo, runStage, stopping } from './stage.js';
import { signedAfter, type StoredProof } from './tables.js';
import { GROUP } from './task.js';

/** Entry point of the third stage: it believes only what it reads back, and says how far that is right. */
runStage(async (sql, task, serves) => {
  const { verify } = await bulkVerification();
  const publicKey = rawPublicKey(task.publicKey);
  const ahead = new Ahead();
  await listenTo(sql, 'bench_signed', () => ahead.wake());
  serves();
  let last = 0;
  while (!stopping.signal.aborted) {
    const news = ahead.heard();
    const rows = await signedAfter(sql, last, Number.MAX_SAFE_INTEGER, GROUP);
    if (rows.length === 0) {
      await news;
      continue;
    }
    for (const row of rows) {
      if (!isRight(row) || !verify(publicKey, row.document, row.signature)) {
        throw new Error(`the proof ${String(row.seq)} is wrong`);
      }
    }
    last = rows.at(-1)?.seq ?? last;
    await sql`update bench_pipeline.verified set seq = ${last}`;
    await announce(sql, 'bench_verified', last);
  }
});

function isRight({ document, document_hash, request_hash }: StoredProof): boolean {
  const text = document.toString();
  const parsed = JSON.parse(text) as { request_hash?: unknown };
  return (
    serialize(parsed) === text &&
    parsed.request_hash === request_hash.toString('hex') &&
    hash('sha256', document, 'hex') === document_hash.toString('hex')
  );
}

/** An Ed25519 key's SubjectPublicKeyInfo ends with its 32 bytes (RFC 8410). */
const rawPublicKey = (pem: string): Buffer =>
  createPublicKey(pem).export({ format: 'der', type: 'spki' }).subarray(-32);
