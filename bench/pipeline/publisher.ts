import { createPrivateKey, hash, sign } from 'node:crypto';
import { open, rename } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { runStage, stopping } from './stage.js';
import { signedAfter, type StoredProof } from './tables.js';
import { GROUP } from './task.js';

/**
 * Entry point of the last stage: every second it writes what is verified into a file, with a digest
 * of each, and signs how far that goes. It also says how much is public, in a facade's place.
 */

const TICK_MS = 1_000;

runStage(async (sql, { directory, privateKey }, serves) => {
  const key = createPrivateKey(privateKey);
  let generation = 1;
  let proofs = 0;
  const server = createServer((_req, res) => {
    res.setHeader('content-type', 'application/json');
    res.end(JSON.stringify({ generation, tree_size: proofs, proofs }));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  serves(`http://127.0.0.1:${String((server.address() as AddressInfo).port)}`);
  while (!stopping.signal.aborted) {
    const began = performance.now();
    const [row] = await sql<{ seq: number }[]>`select seq from bench_pipeline.verified`;
    const upTo = row?.seq ?? 0;
    if (upTo > proofs) {
      generation += 1;
      const digests: string[] = [];
      const bodies: string[] = [];
      let last = proofs;
      while (last < upTo) {
        for (const stored of await signedAfter(sql, last, upTo, GROUP)) {
          const body = bodyOf(stored);
          bodies.push(body);
          digests.push(hash('sha256', body, 'base64url'));
          last = stored.seq;
        }
      }
      await writeDurably(join(directory, `${String(generation)}.bodies`), bodies.join('\n'));
      await writeDurably(join(directory, `${String(generation)}.digests`), digests.join('\n'));
      const head = `${String(generation)} ${String(last)}`;
      const signature = sign(null, Buffer.from(head), key).toString('base64');
      await writeDurably(join(directory, 'head'), `${head}\n${signature}\n`);
      proofs = last;
    }
    const left = TICK_MS - (performance.now() - began);
    await sleep(Math.max(0, left), undefined, { signal: stopping.signal }).catch(() => undefined);
  }
  server.closeAllConnections();
  server.close();
});

/** The document with its signature, for whoever asks. */
const bodyOf = ({ proof_id, document, document_hash, signature }: StoredProof): string =>
  `{"proof_id":"${proof_id}","status":"VALID","hash":"${document_hash.toString('hex')}",` +
  `"signature":"${signature.toString('base64')}","document":${document.toString()}}`;

async function writeDurably(path: string, text: string): Promise<void> {
  const file = await open(`${path}.new`, 'w');
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(`${path}.new`, path);
}
