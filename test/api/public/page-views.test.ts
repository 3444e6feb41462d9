import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { lookupUrl } from '#api/public/page/document';
import { readAnswer } from '#api/public/page/relayed';
import { verdictView } from '#api/public/page/verdict-view';
import type { PublicEvent } from '#protocol/schemas/proof-view';
import type { PublicHistory } from '#protocol/schemas/facade';
import { STATUSES } from '#protocol/status';
import { formatTime } from '#protocol/time';
import { fact, headline, only, section, textOf, times } from '../../fixtures/page-text.js';
import { callAt, type Call, type Reply } from '../../fixtures/public-call.js';
import { everyPageState, type PageStates } from '../../fixtures/public-page.js';

let page: PageStates;
beforeAll(async () => {
  page = await everyPageState();
});
afterAll(() => page.snapshot.close());

const ISSUED = '2026-11-20T12:00:00.000Z';
const call = (path: string, options?: Call): Promise<Reply> => callAt(page.server, path, options);
const askFor = (id: string): Promise<Reply> => call(`/?id=${id}`);
const ask = (name: string): Promise<Reply> => askFor(page.state(name).identifier);

interface Body {
  references: {
    proof_id: string;
    members: { trust_id: string; verification_status: string; can_assert_validity: boolean }[];
  };
  verification: { verification_status: string };
}
const bodyOf = async (name: string): Promise<Body> =>
  (await call(page.state(name).jsonUrl)).body as Body;

/** The contents of the list items of a kind, in order. */
const items = (markup: string, kind: string): string[] =>
  [...markup.matchAll(new RegExp(`<li class="${kind}[^"]*">([\\s\\S]*?)</li>`, 'g'))].map(
    ([, item]) => item!,
  );

describe('history on the HTML page', () => {
  it.each([
    ['certificate', 'certificate', 'history'],
    ['revoked passport', 'passport', 'history'],
    ['expired certificate', 'certificate', 'history'],
    ['revoked trust', 'trust', 'timeline'],
    ['long history', 'trust', 'timeline'],
  ])('lists the events of the JSON history in order for "%s"', async (name, kind, view) => {
    const { identifier } = page.state(name);
    const { body } = await call(`/api/public/${kind}/${identifier}/${view}`);
    const { events } = body as PublicHistory;
    const shown = section('history-title', (await askFor(identifier)).text);
    const expected = events.flatMap((event) => ('at' in event ? [event.at] : []));
    expect(times(shown)).toEqual([...expected, ISSUED]);
    const lines = items(shown, 'event').map(textOf);
    expect(lines).toHaveLength(events.length + 1);
    expect(lines.at(-1)).toContain(`Published as ${page.state(name).status}`);
  });
});

describe('verdict page', () => {
  const ID = `pkg_${'a'.repeat(32)}`;

  /** The page of a package, rendered from the published body after `change` has altered the body. */
  async function packagePage(
    change: (body: Body) => void,
    events: PublicEvent[] = [],
  ): Promise<string> {
    const body = await bodyOf('package');
    change(body);
    return pageOf(body, events);
  }

  function pageOf(body: unknown, events: PublicEvent[] = []): string {
    const relayed = readAnswer({ status: 200, body: Buffer.from(JSON.stringify(body)) });
    return verdictView({
      relayed,
      events,
      links: [],
      identifier: ID,
      isExpected: false,
      jsonUrl: lookupUrl(ID),
      served: { answer: '', vkey: '', generation: 1 },
      base: null,
      issuedAt: ISSUED,
      treeSize: 3,
      window: 1,
    }).main.text;
  }

  const setVerdict = (shown: object, status: string): void => {
    const asserts = /^(VALID|VERIFIED|PASS|TRUST_ESTABLISHED)$/.test(status);
    Object.assign(shown, { verification_status: status, can_assert_validity: asserts });
  };

  it.each(STATUSES)(
    'shows the published package status %s whatever statuses its members have',
    async (status) => {
      for (const ofMembers of STATUSES) {
        const text = await packagePage(({ verification, references }) => {
          setVerdict(verification, status);
          for (const member of references.members) setVerdict(member, ofMembers);
        });
        expect(fact('Status', text)).toBe(status);
        const rows = [...text.matchAll(/<code class="detail">(\w+)</g)].map(([, shown]) => shown);
        expect(rows).toEqual([ofMembers, ofMembers, ofMembers]);
        const asserts = /^(VALID|VERIFIED|PASS|TRUST_ESTABLISHED)$/.test(status);
        expect(fact('Validity asserted', text)).toBe(asserts ? 'Yes' : 'No');
        expect(text.includes('class="verdict good"')).toBe(asserts);
      }
    },
  );

  it('names both possible causes of a dependent status: the artifact, and something it depends on', async () => {
    const claims = async (name: string): Promise<string> => section('says', (await ask(name)).text);
    expect(await claims('revoked')).toContain('The proof was issued. It was later revoked.');
    expect(await claims('revoked trust')).toContain('It, or something it depends on, was later');
    expect(await claims('expired')).toContain('Its validity period has ended.');
    expect(await claims('expired certificate')).toContain('or that of something it depends on');
  });

  it('derives no verdict from the history, and no time of an event from the verdict', async () => {
    const proof = (await call(page.state('valid').jsonUrl)).body as Body;
    const at = formatTime(Date.parse(ISSUED));
    const revoked: PublicEvent = {
      event: 'revoked',
      at,
      artifact: 'proof',
      leaf_index: 1,
      reason_hash: 'b'.repeat(64),
    };
    const valid = pageOf(proof, [revoked]);
    expect(fact('Status', valid)).toBe('VALID');
    expect(headline(valid)).toBe('Valid proof');
    expect(valid).not.toContain('<dt>Revoked</dt>');
    expect(textOf(section('history-title', valid))).toContain('The proof was revoked');

    setVerdict(proof.verification, 'REVOKED');
    const without = pageOf(proof, [{ event: 'accepted', at }]);
    expect(fact('Status', without)).toBe('REVOKED');
    expect(without).not.toContain('<dt>Revoked</dt>');
    expect(items(section('history-title', without), 'event')).toHaveLength(2);
    expect(textOf(without)).toContain('The time of the revocation is not published.');
  });

  it('throws for an unknown or contradictory lookup response', async () => {
    const spoiled: ((body: Body) => void)[] = [
      ({ references }) => Object.assign(references.members[1]!, { verification_status: 'GOOD' }),
      ({ references }) => Object.assign(references.members[1]!, { can_assert_validity: false }),
      ({ references }) => Object.assign(references, { members: [] }),
      ({ references }) => Object.assign(references, { members: undefined }),
      (body) => Object.assign(body, { artifact: {} }),
      ({ verification }) => Object.assign(verification, { verification_status: 'REVOKED' }),
    ];
    for (const change of spoiled) await expect(packagePage(change)).rejects.toThrow();
    await packagePage(() => undefined);
  });
});

describe('HTML page of a package', () => {
  it.each([
    'package',
    'package with a revoked member',
    'package with an expired member',
    'package that is not confirmed',
    'large package',
    'shared package',
  ])('lists the members and verdicts of the lookup response for "%s"', async (name) => {
    const { references } = await bodyOf(name);
    const { text } = await ask(name);
    const shown = only(/<ol class="members">([\s\S]*)<\/ol>\s*<\/section>/, text);
    const rows = [...shown.matchAll(/<li class="(\w+)">\s*<svg([\s\S]*?)<\/li>/g)];
    const expected = references.members.map((member, i) => ({ ...member, number: i + 1 }));
    const inOrder = [
      ...expected.filter((member) => !member.can_assert_validity),
      ...expected.filter((member) => member.can_assert_validity),
    ];
    expect(
      rows.map(([, mark, row]) => ({
        good: mark === 'good',
        number: only(/class="number">(\d+)\./, row!),
        status: only(/class="detail">(\w+)</, row!),
        link: only(/href="\/\?id=([^"]*)"/, row!),
      })),
    ).toEqual(
      inOrder.map((member) => ({
        good: member.can_assert_validity,
        number: String(member.number),
        status: member.verification_status,
        link: member.trust_id,
      })),
    );
    expect(fact('Members', text)).toMatch(new RegExp(`^${expected.length} \\(`));
  });
});

describe('share link page', () => {
  const SHARED = ['shared', 'shared denial', 'shared and revoked', 'shared package'];
  const UNRESOLVABLE = ['share token', 'ended share token'];

  it('contains its token only where it repeats the requested identifier, and no other page contains a token', async () => {
    for (const name of [...SHARED, ...UNRESOLVABLE]) {
      const { identifier, jsonUrl } = page.state(name);
      const { text } = await ask(name);
      const rest = text
        .replace(`value="${identifier}"`, '')
        .replace(`<bdi>${identifier}</bdi>`, '')
        .replace(`data-copy="${identifier}"`, '')
        .replace(`href="${jsonUrl}"`, '')
        .replace(/data-answer="[^"]*"/, (answer) =>
          answer.replaceAll(identifier, '').replace('share_token', ''),
        );
      expect(rest).not.toContain('share_');
      expect(rest).not.toContain(identifier.slice('share_'.length));
    }
    for (const { name, identifier } of page.states.filter(
      (one) => !/^share_/.test(one.identifier),
    )) {
      expect.soft((await askFor(identifier)).text, name).not.toMatch(/share_\w/);
    }
  });

  it('lists the possible reasons for an unresolvable token without revealing the actual one', async () => {
    const [first, second] = UNRESOLVABLE.map((name) => page.state(name).identifier);
    const pages = await Promise.all(
      [first!, second!].map(async (id) => (await askFor(id)).text.replaceAll(id, '…')),
    );
    expect(pages[0]).toBe(pages[1]);
    const shown = textOf(pages[0]!);
    expect(shown).toContain('This share link shows nothing.');
    for (const reason of ['may not exist', 'revoked', 'expired', 'not published']) {
      expect(shown).toContain(reason);
    }
    expect(shown).toContain('Which of these reasons applies.');
    expect(pages[0]).not.toContain('class="qr"');
  });
});
