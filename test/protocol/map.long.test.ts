import { expect, it } from 'vitest';
import { toHex } from '#protocol/bytes';
import { mapKey } from '#protocol/map/nodes';
import { MapPages, type MapHead } from '#protocol/map/paged-map';
import type { MapChange } from '#protocol/map/update';
import { nativeSha256 } from '#runtime/crypto/node';
import { applyTo, rootByDefinition, rootOf, type Model } from '../fixtures/map-model.js';
import { MemoryStore } from '../fixtures/map-store.js';

it('a map in pages > has the root that the specification defines after one million inserts and replacements', async () => {
  const map = new MapPages(nativeSha256, new MemoryStore());
  const model: Model = new Map();
  let head: MapHead = null;
  let random = 1;
  // Numerical Recipes' linear congruential generator, so that a failure repeats.
  const next = (): number => (random = (Math.imul(random, 1_664_525) + 1_013_904_223) >>> 0);
  const known: Uint8Array[] = [];
  for (let done = 0; done < 1_000_000; done += 5_000) {
    const changes = new Map<string, MapChange>();
    for (let n = 0; n < 5_000; n += 1) {
      // Ids that begin with a time, like UUIDv7. One id in a hundred repeats an earlier id.
      const id = new Uint8Array(16);
      const view = new DataView(id.buffer);
      view.setUint32(1, (done + n) * 7);
      view.setUint32(8, next());
      view.setUint32(12, next());
      const isNew = known.length === 0 || next() % 25_600 >= 256;
      const key = isNew ? mapKey('proof', id) : known[next() % known.length]!;
      if (isNew) known.push(key);
      const record = new Uint8Array(8);
      new DataView(record.buffer).setUint32(0, next());
      changes.set(toHex(key), { key, value: { record, history: new Uint8Array(n % 3) } });
    }
    ({ head } = await map.update(head, [...changes.values()]));
    applyTo(model, [...changes.values()]);
  }
  expect(model.size).toBeGreaterThan(980_000);
  expect(rootOf(head)).toBe(rootByDefinition(model));
}, 300_000);
