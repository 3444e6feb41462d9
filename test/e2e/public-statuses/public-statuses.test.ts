import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { idsOf } from '#protocol/ids';
import type { PublicEvent } from '#protocol/schemas/proof-view';
import { skipsNginx, withoutNginx } from '../../fixtures/nginx.js';
import type { Call, Reply } from '../../fixtures/send.js';
import { readOpenApi, type ServedOpenApi } from '../../fixtures/served-openapi.js';
import { asLine, casesOf, faultsIn, readAnswer } from './cases.js';
import { openPublicStack, type FedFrom, type PublicStack } from './stack.js';
import { createPublicStates, RECENT_LOOKUP_LIMIT, type PublicStates } from './states.js';
import { KINDS, LOOKUPS, NONE, STATES, STATUSES, type Kind } from './table.js';

/**
 * Sends each public lookup (spec/answers.md) of artifacts in each state over HTTP to a stack that has processed
 * tenants' requests. The expected responses are in table.ts.
 */

/** The statuses with `can_assert_validity: true`; for every other status it is false. */
const ASSERTING = ['PASS', 'VALID', 'VERIFIED', 'TRUST_ESTABLISHED'];

let stack: PublicStack;
let states: PublicStates;
let openApi: ServedOpenApi;
let isOver = false;
/** The responses recorded around the time of the expiry. */
let followed: Map<string, Promise<Followed>[]>;

beforeAll(async () => {
  stack = await openPublicStack(RECENT_LOOKUP_LIMIT);
  // Polling starts before the expiry, because only a status that was VALID can expire.
  states = await createPublicStates(stack, (fading) => {
    followed = new Map(
      Object.entries(fading).map(([what, { path, last }]) => [
        what,
        stack.sources.map((from) => follow(from, path, last)),
      ]),
    );
  });
  openApi = await readOpenApi(stack.urlOf('directory'));
  await stack.run();
}, 120_000);
afterAll(async () => {
  isOver = true;
  await stack.close();
});

describe(`every public API server${skipsNginx ? withoutNginx : ''}`, () => {
  const said = new Set<string>();
  /** Sends each call to every server, and requires equal responses. */
  const ask = (calls: readonly Call[]): Promise<Reply[]> =>
    Promise.all(
      calls.map(async (call) => {
        let replies: Reply[] = [];
        // Servers load a new snapshot at different times.
        const areOfOneSnapshot = async (): Promise<boolean> => {
          replies = await Promise.all(stack.sources.map((from) => stack.call(from, call)));
          const snapshots = replies.map(({ headers }) => headers['x-svc-snapshot-generation']);
          return new Set(snapshots).size === 1;
        };
        await expect.poll(areOfOneSnapshot).toBe(true);
        const [reply, ...others] = replies;
        for (const { status, headers, bytes } of others) {
          expect([status, lasting(headers)]).toEqual([reply!.status, lasting(reply!.headers)]);
          expect(bytes.equals(reply!.bytes)).toBe(true);
        }
        return reply!;
      }),
    );

  it.each(LOOKUPS)('answers $method $path $member for every status', async (row) => {
    const cases = casesOf(row, states);
    const replies = await ask(cases.map(({ call }) => call));
    const answers = replies.map((reply) => readAnswer(row, reply));
    expect(cases.map(({ asked }, i) => `${asked}: ${asLine(answers[i]!)}`)).toEqual(
      cases.map(({ asked, expected }) => `${asked}: ${expected}`),
    );
    for (const { status, asserts } of answers) {
      expect(asserts).toBe(ASSERTING.includes(status));
      said.add(status);
    }
    const faults = cases.flatMap((one, i) =>
      faultsIn(openApi, row, one, replies[i]!).map((fault) => `${one.asked}: ${fault}`),
    );
    expect(faults).toEqual([]);
  });

  it('has returned every possible status in the tests above', () => {
    expect([...said].sort()).toEqual(STATUSES);
    expect(stack.sources).toEqual(skipsNginx ? ['directory'] : ['directory', 'nginx']);
  });

  it.each(LOOKUPS.filter(({ answer }) => answer === 'history'))(
    'lists every event in the history of an artifact at $path',
    async ({ path, shows }) => {
      const kind = shows as Exclude<Kind, 'proof'>;
      const expected = STATES.filter((state) => state[kind] !== NONE);
      const replies = await ask(
        expected.map(({ state }) => {
          const identifier = idsOf(states.proofs.get(state)!)[`${kind}_id`];
          return { path: path.replace(/\{\w+\}/, identifier) };
        }),
      );
      const events = replies.map(({ json }) =>
        (json['events'] as PublicEvent[]).map(nameOf).sort(),
      );
      expect(events.map((found, i) => [expected[i]!.state, found])).toEqual(
        expected.map((state) => [state.state, eventsOf(state, kind)]),
      );
    },
  );
});

it('served OpenAPI document > lists exactly the lookup routes that these tests call', () => {
  const lookups = openApi.operations.filter(({ operation }) =>
    operation.tags.some((tag) => tag === 'Verification' || tag === 'Artifacts'),
  );
  expect(new Set(lookups.map(({ method, path }) => `${method} ${path}`))).toEqual(
    new Set(LOOKUPS.map(({ method, path }) => `${method} ${path}`)),
  );
});

// These tests need the loops of the programs, which `stack.run` starts.
describe('proof too old for generic lookups', () => {
  /** Waits until every public API server answers `status`; returns a text with the times since `began`. */
  const arrives = async (path: string, status: string, began: number): Promise<string> => {
    const took = stack.sources.map(async (from) => {
      await expect.poll(() => stack.statusOf(from, path), { interval: 10 }).toBe(status);
      return `${from} ${Date.now() - began} ms`;
    });
    return `${status} on ${path.split('/')[1]}: ${(await Promise.all(took)).join(', ')}`;
  };

  it('is reported as revoked, with its package and its share tokens', async ({ annotate }) => {
    const { acme, proofs, packages, tokens } = states;
    const began = Date.now();
    await acme.revoke(proofs.get('old')!, 'passport');
    const expected = [
      arrives(`/certificate/cert_${proofs.get('old')}`, 'REVOKED', began),
      arrives(`/package/${packages.get('old')}`, 'REVOKED', began),
      arrives(`/share/${tokens.get('package of old')}`, 'REVOKED', began),
    ];
    for (const one of await Promise.all(expected)) await annotate(one);
    await arrives(`?identifier=cert_${proofs.get('old')}`, 'BACKEND_LOOKUP_REQUIRED', began);
  });

  it('is reported as revoked when the queue loses the revocation job', async () => {
    const { acme, proofs } = states;
    stack.queue.losesRevocations = true;
    await acme.revoke(proofs.get('last outside')!, 'trust');
    stack.queue.losesRevocations = false;
    await arrives(`/trust/trust_${proofs.get('last outside')}`, 'REVOKED', Date.now());
  });

  it('is not resolved by a revoked share token', async ({ annotate }) => {
    const { acme, proofs } = states;
    const shared = { artifact_kind: 'proof', proof_id: proofs.get('last outside') };
    const { token, hash } = await acme.share(shared);
    await annotate(await arrives(`/share/${token}`, 'VALID', Date.now()));
    const began = Date.now();
    await acme.endShare(hash);
    await annotate(await arrives(`/share/${token}`, 'BACKEND_LOOKUP_REQUIRED', began));
  });

  it.for([
    ['is reported as expired', 'proof'],
    ['is no longer shown by an expired token', 'token'],
  ] as const)('%s once its expiry has passed, and not earlier', async ([, what], { annotate }) => {
    const { ends, last } = states.fading[what];
    for (const { said, at } of await Promise.all(followed.get(what)!)) {
      expect(said).toEqual(['VALID', last]);
      expect(at).toBeGreaterThanOrEqual(ends);
      await annotate(`${last}: ${at - ends} ms`);
    }
  });
});

/** The expected history of an artifact, including events of the artifacts it depends on. */
function eventsOf({ ends, revoked }: (typeof STATES)[number], kind: Kind): string[] {
  const restsOn: readonly string[] = KINDS.slice(0, KINDS.indexOf(kind) + 1);
  return [
    'accepted',
    'appended',
    ...(restsOn.includes(ends) ? [`expired ${ends}`] : []),
    ...(restsOn.includes(revoked) ? [`revoked ${revoked}`] : []),
    'verified',
  ];
}

function nameOf(event: PublicEvent): string {
  if (event.event === 'expired') return `expired ${event.artifacts.join()}`;
  return event.event === 'revoked' ? `revoked ${event.artifact}` : event.event;
}

interface Followed {
  /** The distinct statuses in the order of their appearance. */
  said: string[];
  /** Time of the last answer, in epoch milliseconds. */
  at: number;
}

/** Polls until the status is `last`. */
async function follow(from: FedFrom, path: string, last: string): Promise<Followed> {
  const said = new Set<string>();
  while (!isOver && !said.has(last)) {
    said.add(await stack.statusOf(from, path).catch(String));
    await sleep(20);
  }
  return { said: [...said], at: Date.now() };
}

/** Removes the headers that change with every response or snapshot. */
function lasting(headers: Reply['headers']): unknown {
  const changing = [
    'date',
    'x-request-id',
    'x-svc-snapshot-issued-at',
    'x-svc-snapshot-generation',
    'x-svc-tree-size',
  ];
  return Object.entries(headers)
    .filter(([name]) => !changing.includes(name))
    .map(([name, value]) => [
      name,
      name === 'etag' ? String(value).replace(/\d+-\d+-/, '') : value,
    ]);
}
