import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { admitted } from '#sdk/adapters/index';
import { admitHttp, canonicalHash, SdkError, type JsonValue } from '#sdk/index';
import { useAdapterWorld } from '../fixtures/adapter-world.js';

const world = useAdapterWorld();

function tool(options: Partial<Parameters<typeof admitted>[1]> = {}) {
  const book = (..._args: unknown[]): Promise<unknown> => Promise.resolve({ table: 4 });
  const all = { ...world.common, tool: 'reservations.create', ...options } as Parameters<
    typeof admitted
  >[1];
  return admitted(book, all);
}

describe('outcome that cannot be recorded', () => {
  it("leaves the tool's result or error unchanged, and is recorded once when sent again", async () => {
    const mine = new Error('mine');
    const fetcher = brokenAfterFirst();
    const engine = { ...world.options, fetch: fetcher.fetch };
    expect(await tool({ engine })('a')).toEqual({ table: 4 });
    fetcher.reset();
    const failing = admitted(() => Promise.reject(mine), {
      ...{ ...world.common, engine, tool: 'b' },
      onOutcomeError: (one) => {
        world.lost.push(one);
        throw new Error('a bug in the callback');
      },
    });
    await expect(failing()).rejects.toBe(mine);
    expect(world.lost.map(({ tool: name, proofId }) => [name, proofId])).toEqual([
      ['reservations.create', world.admitted[0]],
      ['b', world.admitted[1]],
    ]);
    const [first] = world.lost;
    expect(first?.error).toBeInstanceOf(SdkError);
    const kept = JSON.parse(JSON.stringify(first?.envelope)) as never;
    await admitHttp(world.options, kept);
    await admitHttp(world.options, kept);
    expect(await world.outcomesOf(world.admitted[0]!)).toHaveLength(1);

    function brokenAfterFirst() {
      let made = 0;
      return {
        reset: () => (made = 0),
        fetch: (...call: Parameters<typeof fetch>) =>
          made++ === 0 ? fetch(...call) : Promise.resolve(new Response('no', { status: 500 })),
      };
    }
  });

  it('is abandoned after outcomeTimeoutMs, and does not delay the call when waitUntil is given', async () => {
    const silentOutcome = (...call: Parameters<typeof fetch>): Promise<Response> =>
      String(Buffer.from(call[1]?.body as Uint8Array)).includes('"outcome"')
        ? new Promise((_, reject) => {
            call[1]?.signal?.addEventListener('abort', () => reject(new Error('aborted')));
          })
        : fetch(...call);
    const engine = { ...world.options, fetch: silentOutcome };
    const began = performance.now();
    expect(await tool({ engine, outcomeTimeoutMs: 200 })('a')).toEqual({ table: 4 });
    expect(performance.now() - began).toBeLessThan(5_000);
    expect(world.lost).toHaveLength(1);
    expect(world.lost[0]?.error).toMatchObject({ code: 'timeout' });

    world.clear();
    const left: Promise<void>[] = [];
    const waitUntil = (work: Promise<void>) => left.push(work);
    expect(await tool({ engine, outcomeTimeoutMs: 200, waitUntil })('b')).toEqual({ table: 4 });
    expect(world.lost).toEqual([]);
    await Promise.all(left);
    expect(world.lost).toHaveLength(1);
  });
});

describe('streamed result of an admitted function', () => {
  it('is passed through item by item, and its end determines the outcome', async () => {
    const words = admitted(
      async function* (first: string) {
        yield first;
        await sleep(1);
        const more: string = yield 'b';
        return `end ${more}`;
      },
      { ...world.common, tool: 'words' },
    );
    const stream = await words('a');
    expect(await stream.next()).toEqual({ done: false, value: 'a' });
    expect(await stream.next()).toEqual({ done: false, value: 'b' });
    const [proofId = ''] = world.admitted;
    expect(await world.outcomesOf(proofId)).toEqual([]);
    expect(await stream.next('so')).toEqual({ done: true, value: 'end so' });
    expect(await world.outcomesOf(proofId)).toEqual([
      {
        kind: 'outcome',
        parent_proof_id: proofId,
        result: 'succeeded',
        result_hash: canonicalHash(['a', 'b', 'end so']),
      },
    ]);
  });

  it('has a failed outcome when the stream throws or its reader stops early', async () => {
    let closed = false;
    const words = admitted(
      async function* (breaks: boolean) {
        try {
          yield 'a';
          await sleep(1);
          if (breaks) throw new Error('mine');
          yield 'b';
        } finally {
          closed = true;
        }
      },
      { ...world.common, tool: 'words' },
    );
    const broken = await words(true);
    await broken.next();
    await expect(broken.next()).rejects.toThrow('mine');
    for await (const word of await words(false)) {
      expect(word).toBe('a');
      break;
    }
    expect(closed).toBe(true);
    for (const proofId of world.admitted) {
      expect(await world.outcomesOf(proofId)).toMatchObject([{ result: 'failed' }]);
    }
  });

  it('may be a ReadableStream', async () => {
    const read = admitted((items: JsonValue[]) => ReadableStream.from(items), {
      ...world.common,
      tool: 'read',
    });
    const lists: JsonValue[][] = [[], ['a'], [{ b: [1, 'ü'], a: {} }, null, 2e30]];
    for (const list of lists) {
      const seen: unknown[] = [];
      for await (const item of await read(list)) seen.push(item);
      expect(seen).toEqual(list);
    }
    const unread = await read(['a']);
    await unread.cancel();
    const outcomes = await Promise.all(world.admitted.map((id) => world.outcomesOf(id)));
    expect(outcomes).toMatchObject([
      ...lists.map((list) => [{ result: 'succeeded', result_hash: canonicalHash(list) }]),
      [{ result: 'failed' }],
    ]);
  });
});
