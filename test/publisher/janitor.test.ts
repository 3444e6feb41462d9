import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { useSnapshot } from '../fixtures/use-registry.js';

const MINUTE = 60_000;

const snapshot = useSnapshot();

const at = (path: string): string => join(snapshot.directory, path);
const segments = (): string[] => readdirSync(at('lookup/segments'));
const partsNow = (): string[] =>
  [...readFileSync(at('lookup/manifest'), 'utf8').matchAll(/"sha256":"([0-9a-f]{64})"/g)].map(
    (match) => match[1]!,
  );

async function publishProofs(publisher: { runCycle(): Promise<unknown> }, count: number) {
  snapshot.registry.addProofs(count);
  snapshot.registry.verify();
  await publisher.runCycle();
}

describe('janitor', () => {
  it('keeps replaced index segments for an hour, and referenced files for ever', async () => {
    const publisher = snapshot.publisher();
    const replaced: string[] = [];
    for (let i = 0; i < 4; i++) {
      await publishProofs(publisher, 2);
      replaced.push(...partsNow());
    }
    const stale = [...new Set(replaced)].filter((name) => !partsNow().includes(name));
    expect(stale.length).toBeGreaterThan(0);
    snapshot.clock.at += 6 * MINUTE;
    await publisher.runCycle();
    snapshot.clock.at += 59 * MINUTE;
    await publisher.runCycle();
    for (const name of stale) expect(segments()).toContain(name);
    snapshot.clock.at += 6 * MINUTE;
    await publisher.runCycle();
    for (const name of stale) expect(segments()).not.toContain(name);
    for (const name of partsNow()) expect(segments()).toContain(name);
    // The remaining index segments still refer to these bodies.
    const publicServer = snapshot.publicServer();
    const server = await snapshot.serve(publicServer);
    for (const leaf of snapshot.registry.all) {
      if (leaf.kind !== 'proof') continue;
      const response = await fetch(`${server.url}/api/public/verify/proof/${leaf.proofId}`);
      expect(response.status).toBe(200);
    }
  });

  it('removes partial tiles an hour after their full tile exists', async () => {
    const publisher = snapshot.publisher();
    await publishProofs(publisher, 100);
    for (let i = 0; i < 20; i++) {
      snapshot.clock.at += 6 * MINUTE;
      await publisher.runCycle();
    }
    expect(existsSync(at('tile/0/000.p/101'))).toBe(true);
    await publishProofs(publisher, 300);
    snapshot.clock.at += 6 * MINUTE;
    await publisher.runCycle();
    expect(existsSync(at('tile/0/000.p/101'))).toBe(true);
    for (let i = 0; i < 11; i++) {
      snapshot.clock.at += 6 * MINUTE;
      await publisher.runCycle();
    }
    expect(existsSync(at('tile/0/000.p'))).toBe(false);
    expect(existsSync(at('tile/entries/000.p'))).toBe(false);
    expect(existsSync(at('tile/0/000'))).toBe(true);
    expect(existsSync(at('tile/0/001.p/145'))).toBe(true);
    expect(existsSync(at('tile/1/000.p/1'))).toBe(true);
  });

  it('removes staged files of a crashed publisher at once, and unreferenced files after an hour', async () => {
    mkdirSync(at('.staging'), { recursive: true });
    mkdirSync(at('lookup/segments'), { recursive: true });
    writeFileSync(at('.staging/half'), 'x');
    writeFileSync(at(`lookup/segments/${'0'.repeat(64)}`), 'x');
    const publisher = snapshot.publisher();
    await publishProofs(publisher, 1);
    expect(readdirSync(at('.staging'))).toEqual([]);
    expect(segments()).toContain('0'.repeat(64));
    snapshot.clock.at += 61 * MINUTE;
    await publisher.runCycle();
    expect(segments()).not.toContain('0'.repeat(64));
  });
});
