import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { admitted } from '#sdk/adapters/index';
import { canonicalHash, type JsonValue } from '#sdk/index';
import { notAdmitted, useAdapterWorld } from '../fixtures/adapter-world.js';

const world = useAdapterWorld();

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
    const unread = await words(false);
    await unread.return(undefined);
    expect(world.admitted).toHaveLength(3);
    for (const proofId of world.admitted) {
      expect(await world.outcomesOf(proofId)).toMatchObject([{ result: 'failed' }]);
    }
  });

  it('does not start when the arguments of the function changed before the first read', async () => {
    const read: string[] = [];
    const options = { ...world.common, tool: 'pages' };
    const pages = admitted(async function* (input: { page: string }) {
      await sleep(0);
      read.push(input.page);
      yield input.page;
    }, options);
    function* list(input: { page?: string }) {
      read.push(input.page!);
      yield input.page;
    }
    const input = { page: 'a' };
    const streams = [await pages(input), await admitted(list, options)(input)];
    input.page = 'b';
    for (const stream of streams) {
      await notAdmitted((async () => stream.next())(), 'arguments_changed');
      expect(await stream.next()).toEqual({ done: true, value: undefined });
    }
    expect(read).toEqual([]);
    for (const proofId of world.admitted) {
      await expect.poll(() => world.outcomesOf(proofId)).toMatchObject([{ result: 'failed' }]);
    }
    // A change that the tool itself makes before it returns is part of its run.
    const withDefault = admitted((given: { page?: string }) => {
      given.page ??= 'first';
      return list(given);
    }, options);
    expect([...(await withDefault({}))]).toEqual(['first']);
    // A change right after the tool has returned is not part of its run.
    const racing = admitted((given: { page: string }) => {
      queueMicrotask(() => void (given.page = 'b'));
      return list(given);
    }, options);
    const raced = await racing({ page: 'a' });
    const firstRead = Promise.resolve().then(() => raced.next());
    await notAdmitted(firstRead, 'arguments_changed');
  });

  it('does not start when the arguments change, if it is a promised generator or a ReadableStream', async () => {
    const read: string[] = [];
    const options = { ...world.common, tool: 'pages' };
    async function* pages(input: { page: string }) {
      await sleep(0);
      read.push(input.page);
      yield input.page;
    }
    const lazily = (input: { page: string }) =>
      new ReadableStream({ pull: () => void read.push(input.page) }, { highWaterMark: 0 });
    const input = { page: 'a' };
    const promised = await admitted(
      (one: { page: string }) => Promise.resolve(pages(one)),
      options,
    )(input);
    const streams = [
      await admitted(lazily, options)(input),
      await admitted((one: { page: string }) => Promise.resolve(lazily(one)), options)(input),
    ];
    input.page = 'b';
    await notAdmitted(promised.next(), 'arguments_changed');
    for (const stream of streams) {
      await notAdmitted(stream.getReader().read(), 'arguments_changed');
    }
    expect(read).toEqual([]);
    expect(world.admitted).toHaveLength(3);
    for (const proofId of world.admitted) {
      expect(await world.outcomesOf(proofId)).toMatchObject([{ result: 'failed' }]);
    }
  });

  it('does not start if it is aborted or ended before the first read, and has one outcome', async () => {
    let ran = 0;
    const controller = new AbortController();
    const options = { ...world.common, tool: 'pages', signal: () => controller.signal };
    async function* pages() {
      ran++;
      await sleep(0);
      yield 1;
    }
    function* list() {
      ran++;
      yield 1;
    }
    const many = admitted(pages, options);
    const few = admitted(list, options);
    const aborted = [await many(), await few()];
    const mine = new Error('mine');
    await expect((await many()).throw(mine)).rejects.toBe(mine);
    await (await many()).return(undefined);
    const thrown = await few();
    expect(() => thrown.throw(mine)).toThrow(mine);
    (await few()).return(undefined);
    controller.abort();
    for (const stream of aborted) await notAdmitted((async () => stream.next())(), 'aborted');
    expect(ran).toBe(0);
    expect(world.admitted).toHaveLength(6);
    const outcomes = () => Promise.all(world.admitted.map((id) => world.outcomesOf(id)));
    await expect.poll(outcomes).toMatchObject(world.admitted.map(() => [{ result: 'failed' }]));
  });

  it('may be a generator, whose outcome is recorded after its end', async () => {
    let started = 0;
    const count = admitted(
      function* (last: number, breaks: boolean) {
        started++;
        yield* Array.from({ length: last }, (_, n) => n + 1);
        if (breaks) throw new Error('mine');
        const more: unknown = yield 0;
        return `end ${String(more)}`;
      },
      { ...world.common, tool: 'count' },
    );
    const numbers = await count(1, false);
    expect([started, await world.outcomesOf(world.admitted[0] ?? '')]).toEqual([0, []]);
    expect([numbers.next(), numbers.next(), numbers.next('so')]).toEqual([
      { done: false, value: 1 },
      { done: false, value: 0 },
      { done: true, value: 'end so' },
    ]);
    const broken = await count(0, true);
    expect(() => broken.next()).toThrow('mine');
    for (const number of await count(2, false)) if (number === 1) break;
    (await count(2, false)).return('unread');
    const outcomes = () => Promise.all(world.admitted.map((id) => world.outcomesOf(id)));
    await expect
      .poll(outcomes)
      .toMatchObject([
        [{ result: 'succeeded', result_hash: canonicalHash([1, 0, 'end so']) }],
        [{ result: 'failed' }],
        [{ result: 'failed' }],
        [{ result: 'failed' }],
      ]);
  });

  it('is an ordinary result if another reader has locked the stream', async () => {
    const stream = ReadableStream.from(['a']);
    const reader = stream.getReader();
    const read = admitted(() => stream, { ...world.common, tool: 'read' });
    expect(await read()).toBe(stream);
    expect(await reader.read()).toEqual({ done: false, value: 'a' });
    expect(await world.outcomesOf(world.admitted[0] ?? '')).toMatchObject([
      { result: 'succeeded' },
    ]);
  });

  it('is not detected in a proxy that returns a function for every name', async () => {
    const proxy = new Proxy({}, { get: (_, name) => (name === 'then' ? undefined : () => 4) });
    expect(await admitted(() => proxy, { ...world.common, tool: 'read' })()).toBe(proxy);
  });

  it('may be a ReadableStream', async () => {
    const read = admitted((items: JsonValue[]) => ReadableStream.from(items), {
      ...world.common,
      tool: 'read',
    });
    // The reader stops while it waits for the next item. This case is first, so that a second outcome would arrive before the check below.
    const endless = new ReadableStream({ start: (stream) => stream.enqueue('a') });
    const watch = admitted(() => endless, { ...world.common, tool: 'watch' });
    const reader = (await watch()).getReader();
    await reader.read();
    const next = reader.read();
    await sleep(1);
    await reader.cancel();
    expect(await next).toMatchObject({ done: true });
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
      [{ result: 'failed' }],
      ...lists.map((list) => [{ result: 'succeeded', result_hash: canonicalHash(list) }]),
      [{ result: 'failed' }],
    ]);
  });
});
