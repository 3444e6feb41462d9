import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { BucketStore } from '#runtime/store/bucket';

/** A bucket in which each deletion takes some milliseconds, and the deletion of `broken` fails at once. */
class SlowBucket extends BucketStore {
  removed = 0;
  protected readonly unusedTag = 'none';

  protected open = () => Promise.resolve(null);
  protected write = () => Promise.resolve(null);
  protected listPage = () => Promise.resolve({ keys: [], next: undefined });

  protected async removeObject(key: string): Promise<void> {
    if (key === 'broken') throw new Error('the server is busy');
    await sleep(5);
    this.removed += 1;
  }
}

it('bucket > reports a failed deletion only after every deletion has ended', async () => {
  const bucket = new SlowBucket('s3://bucket');
  const paths = Array.from({ length: 100 }, (_, i) => `map/${String(i)}`);
  await expect(bucket.remove([...paths, 'broken'])).rejects.toThrow('cannot delete broken');
  const { removed } = bucket;
  await sleep(100);
  expect(bucket.removed).toBe(removed);
});
