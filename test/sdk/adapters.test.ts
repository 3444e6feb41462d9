import { describe, expect, it } from 'vitest';
import { admitted } from '#sdk/adapters/index';
import { admitHttp, isNotAdmitted, SdkError, type SdkErrorCode } from '#sdk/index';
import { notAdmitted, useAdapterWorld } from '../fixtures/adapter-world.js';

const AWAY = { engineUrl: 'http://127.0.0.1:9' };

// Options for an engine that answers 202 after a short wait.
const world = useAdapterWorld({ waitMs: 1_000 });
let ran: unknown[][];

/** A tool that records its calls. */
function tool(options: Partial<Parameters<typeof admitted>[1]> = {}) {
  ran = [];
  const book = (...args: unknown[]): Promise<unknown> => {
    ran.push(args);
    return Promise.resolve({ table: 4 });
  };
  const all = { ...world.common, tool: 'reservations.create', ...options } as Parameters<
    typeof admitted
  >[1];
  return admitted(book, all);
}

/** The error of a call that did not run its tool. */
async function blocked(call: Promise<unknown>, code?: SdkErrorCode): Promise<SdkError> {
  const error = await notAdmitted(call, code);
  expect(ran).toEqual([]);
  return error;
}

describe('admitted function', () => {
  it('keeps `this`, arguments and name, and hashes only the chosen arguments', async () => {
    const table = {
      seats: 4,
      reserve: admitted(
        function reserve(this: { seats: number }, input: { n: number }, context: Date) {
          return `${String(this.seats)} ${String(input.n)} ${String(context.getTime())}`;
        },
        { ...world.common, tool: 'reserve', describe: (input) => ({ hashed: input }) },
      ),
    };
    expect(table.reserve.name).toBe('reserve');
    const result: string = await table.reserve({ n: 1 }, new Date(7));
    expect(result).toBe('4 1 7');
    const [proofId] = world.admitted;
    await world.expectProof(proofId, {
      agent: { id: 'agent-7' },
      action: 'RESERVE',
      tool: 'reserve',
      args: { n: 1 },
      result,
    });
  });

  it('throws its own error, and records no hash for a result without a JSON form', async () => {
    const mine = new SdkError('not_found', 'no table');
    expect(isNotAdmitted(mine)).toBe(false);
    const failing = admitted(() => Promise.reject(mine), { ...world.common, tool: 'book' });
    await expect(failing()).rejects.toBe(mine);
    const [failed = ''] = world.admitted;
    expect(await world.outcomesOf(failed)).toEqual([
      { kind: 'outcome', parent_proof_id: failed, result: 'failed' },
    ]);
    world.clear();
    const made = new Map([['a', 1]]);
    const odd = admitted(() => made, { ...world.common, tool: 'book' });
    expect(await odd()).toBe(made);
    const [proofId = ''] = world.admitted;
    expect(await world.outcomesOf(proofId)).toEqual([
      { kind: 'outcome', parent_proof_id: proofId, result: 'succeeded' },
    ]);
  });

  it('sends no arguments, results or errors to the engine', async () => {
    const MARKER = 'never-send-this';
    const input = { [MARKER]: MARKER };
    const good = admitted((_given: unknown) => input, { ...world.common, tool: 'good' });
    const failed = (_given: unknown) => Promise.reject(new Error(MARKER));
    await good(input);
    await expect(admitted(failed, { ...world.common, tool: 'bad' })(input)).rejects.toThrow(MARKER);
    expect(world.network.seen).toHaveLength(4);
    expect(JSON.stringify(world.network.seen)).not.toContain(MARKER);
  });
});

describe('function whose call is not admitted', () => {
  it('does not run when it is denied, and the denial has a proof', async () => {
    const reported: SdkError[] = [];
    const call = tool({ tool: 'delete-audit-log', onNotAdmitted: (one) => reported.push(one) })();
    const error = await blocked(call, 'policy_denied');
    expect(error).toMatchObject({ tool: 'delete-audit-log', action: 'DELETE_AUDIT_LOG' });
    expect(error.denial?.receipt).toMatchObject({ status: 'DENIED' });
    expect(error.message).toContain(Object.values(error.denial?.sentences ?? {})[0]);
    expect(reported).toEqual([error]);
    const proofId = error.denial!.receipt.registry_proof_id;
    expect(error.proofId).toBe(proofId);
    expect(await world.verdict(proofId)).toEqual({ status: 'VALID', effect: 'DENY' });
    expect(await world.outcomesOf(proofId)).toEqual([]);
  });

  it('does not run after network faults and unexpected responses', async () => {
    const json = { 'Content-Type': 'application/json' };
    const answer = (status: number, body = '{}') =>
      ({ kind: 'answer', status, headers: json, body }) as const;
    const retry = { attempts: 1 };
    const faults = [
      { kind: 'lost' },
      { kind: 'cut' },
      { kind: 'unanswered' },
      ...[200, 201, 204, 301, 401, 423, 500, 503].map((status) => answer(status)),
      answer(200, '{"status":"ADMITTED"}'),
      { kind: 'changed', change: (body: string) => body.replace('ADMITTED', 'DENIED') },
      { kind: 'changed', change: (body: string) => body.replace(/"request_hash":"../, '$&00') },
    ] as typeof world.network.faults;
    for (const fault of faults) {
      world.network.faults.push(fault);
      await blocked(tool({ engine: { ...world.options, retry } })('once'));
    }
    world.network.faults.push({ kind: 'silent' });
    const silent = { ...world.options, retry, timeoutMs: 1_000 };
    await blocked(tool({ engine: silent })(), 'timeout');
    await blocked(tool({ engine: { ...world.options, ...AWAY, retry } })(), 'network');
    const wrongKey = { ...world.options, apiKey: 'svc_sk_none' };
    const { requestId } = await blocked(tool({ engine: wrongKey })(), 'unauthenticated');
    expect(requestId).toBeDefined();
    const fetcher = () => Promise.reject(new Error('a bug in the fetch'));
    await blocked(tool({ engine: { ...world.options, retry, fetch: fetcher } })(), 'network');
    expect(world.lost).toEqual([]);
  });

  it('does not run while the decision is pending, and the error names the proof', async () => {
    world.engine.worker.isPaused = true;
    const call = tool({ engine: { ...world.options, timeoutMs: 3_000 } })('open');
    expect((await blocked(call, 'timeout')).proofId).toMatch(/^[0-9a-f]{32}$/);
    world.engine.worker.isPaused = false;
    await world.engine.worker.work();
  });

  it('does not run when its signal aborts before, during or after the request', async () => {
    const signal = () => AbortSignal.abort();
    await blocked(tool({ signal })(), 'aborted');
    const controller = new AbortController();
    world.network.faults.push({ kind: 'silent' });
    const before = world.network.seen.length;
    const meanwhile = tool({ signal: () => controller.signal })();
    meanwhile.catch(() => undefined);
    await expect.poll(() => world.network.seen.length).toBe(before + 1);
    controller.abort();
    await blocked(meanwhile, 'aborted');
    // The option `signal` is a function that returns a new signal at each call.
    const fresh: AbortController[] = [];
    const renewed = tool({
      signal: () => fresh[fresh.push(new AbortController()) - 1]!.signal,
      onAdmitted: () => fresh[0]!.abort(),
    });
    await blocked(renewed(), 'aborted');
    expect(fresh).toHaveLength(1);
    // The signal fires when the response has arrived.
    const last = new AbortController();
    const abortingAfterwards: typeof fetch = async (...call) => {
      const answer = await fetch(...call);
      const bytes = new Uint8Array(await answer.arrayBuffer());
      const start = (controller: ReadableStreamDefaultController): void => {
        controller.enqueue(bytes);
        controller.close();
        last.abort();
      };
      return last.signal.aborted
        ? new Response(bytes, answer)
        : new Response(new ReadableStream({ start }), answer);
    };
    const engine = { ...world.options, fetch: abortingAfterwards };
    const { proofId = '' } = await blocked(
      tool({ engine, signal: () => last.signal })(),
      'aborted',
    );
    expect(await world.outcomesOf(proofId)).toMatchObject([{ result: 'failed' }]);
  });

  it('does not run when its arguments have no JSON form, and no request is sent', async () => {
    const circle: unknown[] = [];
    circle.push(circle);
    const odd = [
      undefined,
      10n,
      Number.NaN,
      Infinity,
      () => 1,
      Symbol('a'),
      new Date(0),
      new Map(),
      new Uint8Array(1),
      circle,
      'half \ud800',
      { a: { b: undefined } },
      { toJSON: () => 1 },
      { [Symbol('hidden')]: 1 },
      Object.defineProperty({}, 'hidden', { value: 1 }),
      Object.create({ inherited: 1 }),
      [1, , 2],
      Object.assign([1], { more: 2 }),
      Array.from({ length: 1e5 }).reduce<unknown>((inner) => [inner], 1),
    ];
    for (const one of odd) {
      const error = await blocked(tool()('fine', one), 'invalid_input');
      expect(error.message).toMatch(
        /^reservations\.create did not run: the call cannot be described in a proof: /,
      );
    }
    const reasons = [
      [() => tool()({ a: [0, 1n] }), '/0/a/1: bigint'],
      [() => tool()({ when: new Date(0) }), '/0/when: a value of the type Date is not plain JSON'],
      [() => tool()([1, , 2]), '/0: the array has holes, or members that are not items'],
      [() => tool()({ [Symbol('a')]: 1 }), '/0: the object has symbol or non-enumerable members'],
      [() => tool()(Number.NaN), '/0: number is not finite'],
      [() => tool()('half \ud800'), '/0: string contains a lone surrogate'],
      [() => tool({ tool: 'half \ud800' })(), '/tool: string contains a lone surrogate'],
      [() => tool({ describe: () => ({ facts: { a: '\ud800' } }) })(), '/facts/a: string contains'],
    ] as const;
    for (const [call, reason] of reasons) {
      expect((await blocked(call(), 'invalid_input')).message).toContain(reason);
    }
    const throws = () => {
      throw new Error('cannot');
    };
    for (const one of [{ describe: throws }, { signal: throws }]) {
      await blocked(tool(one)('fine'), 'invalid_input');
    }
    expect(world.network.seen).toEqual([]);
  });

  it('does not run when its arguments change during the admission request', async () => {
    world.network.faults.push({ kind: 'late', ms: 50 });
    const input = { seats: 2 };
    const call = tool()(input);
    input.seats = 200;
    const { proofId = '' } = await blocked(call, 'arguments_changed');
    expect(await world.outcomesOf(proofId)).toEqual([
      { kind: 'outcome', parent_proof_id: proofId, result: 'failed' },
    ]);
  });

  it('throws for invalid options as soon as it is wrapped', () => {
    const wrong = [
      { engine: { ...world.options, engineUrl: 'nowhere' } },
      { engine: { ...world.options, apiKey: '' } },
      { agent: { id: '' } },
      { parentProofId: 'none' },
      { mode: 'observer' as 'observe' },
      { mode: 'observe' as const },
      { onOutcomeError: undefined as never },
      { tool: '計算' },
      { tool: '' },
      { action: 'lower' },
    ];
    for (const one of wrong) {
      expect(() => tool(one as never)).toThrow(expect.objectContaining({ code: 'invalid_input' }));
    }
  });
});

describe('adapter mode observe', () => {
  const observing = (more: object = {}) => {
    const reported: SdkError[] = [];
    const left: Promise<void>[] = [];
    const book = tool({
      ...{ mode: 'observe', onNotAdmitted: (one) => reported.push(one) },
      ...{ waitUntil: (work) => left.push(work), ...more },
    });
    return { book, reported, settled: () => Promise.all(left) };
  };

  it('runs the tool at once, and records the same proofs as the mode enforce', async () => {
    const { book, reported, settled } = observing({ signal: () => AbortSignal.abort() });
    world.network.faults.push({ kind: 'late', ms: 200 });
    expect(await book('a')).toEqual({ table: 4 });
    expect(world.admitted).toEqual([]);
    await settled();
    expect(reported).toEqual([]);
    expect(await world.outcomesOf(world.admitted[0]!)).toMatchObject([{ result: 'succeeded' }]);
  });

  it('reports the calls that the mode enforce would have stopped', async () => {
    const cases: [object, unknown, SdkErrorCode][] = [
      [{ tool: 'DELETE_AUDIT_LOG' }, 'a', 'policy_denied'],
      [{ engine: { ...world.options, ...AWAY, retry: { attempts: 1 } } }, 'a', 'network'],
      [{}, 1n, 'invalid_input'],
    ];
    for (const [more, argument, code] of cases) {
      const { book, reported, settled } = observing(more);
      expect(await book(argument)).toEqual({ table: 4 });
      await settled();
      expect(reported.map((one) => one.code)).toEqual([code]);
    }
    expect(world.lost).toEqual([]);
  });

  it('sends at most 256 requests to an engine that does not answer, and reports the further calls', async () => {
    const { book, reported, settled } = observing({ decisionTimeoutMs: 3_000 });
    const calls = Array.from({ length: 300 }, (_, n) => n);
    world.network.faults.push(...calls.slice(0, 256).map(() => ({ kind: 'silent' }) as const));
    await Promise.all(calls.map((n) => book(n)));
    expect(reported.map((one) => one.code)).toEqual(Array(44).fill('unavailable'));
    await settled();
    expect(reported.slice(44).map((one) => one.code)).toEqual(Array(256).fill('timeout'));
    await book('a');
    await settled();
    expect(world.admitted).toHaveLength(1);
  });
});

const passed = { kind: 'late', ms: 0 } as const;

describe('outcome that cannot be recorded', () => {
  it("leaves the tool's result or error unchanged, and is recorded once when sent again", async () => {
    const mine = new Error('mine');
    const failed = { kind: 'answer', status: 500 } as const;
    world.network.faults.push(passed, failed, passed, failed);
    expect(await tool()('a')).toEqual({ table: 4 });
    const failing = admitted(() => Promise.reject(mine), {
      ...{ ...world.common, tool: 'b' },
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
  });

  it('is abandoned after outcomeTimeoutMs, and does not delay the call when waitUntil is given', async () => {
    world.network.faults.push(passed, { kind: 'silent' });
    const began = performance.now();
    expect(await tool({ outcomeTimeoutMs: 200 })('a')).toEqual({ table: 4 });
    expect(performance.now() - began).toBeLessThan(5_000);
    expect(world.lost).toHaveLength(1);
    expect(world.lost[0]?.error).toMatchObject({ code: 'timeout' });

    world.clear();
    world.network.faults.push(passed, { kind: 'silent' });
    const left: Promise<void>[] = [];
    const waitUntil = (work: Promise<void>) => left.push(work);
    expect(await tool({ outcomeTimeoutMs: 200, waitUntil })('b')).toEqual({ table: 4 });
    expect(world.lost).toEqual([]);
    await Promise.all(left);
    expect(world.lost).toHaveLength(1);
  });
});
