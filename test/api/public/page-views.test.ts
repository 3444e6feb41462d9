import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { lookupUrl } from '#api/public/page/document';
import { readAnswer } from '#api/public/page/relayed';
import { verdictView } from '#api/public/page/verdict-view';
import type { PublicEvent } from '#protocol/schemas/proof-view';
import type { PublicHistory, PublicTrustChain } from '#protocol/schemas/facade';
import { STATUSES } from '#protocol/status';
import { formatTime } from '#protocol/time';
import { interruptible } from '../../fixtures/interruptible.js';
import { fact, headline, only, section, textOf, times } from '../../fixtures/page-text.js';
import { callAt, type Call, type Reply } from '../../fixtures/public-call.js';
import { everyPageState, type PageStates } from '../../fixtures/public-page.js';
import { TestSnapshot } from '../../fixtures/snapshot.js';

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

/** The contents of the list items in some markup, in order. */
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
    events.forEach((event, i) => expect(lines[i]).toMatch(WORDS[event.event]));
    expect(lines.at(-1)).toContain(`Published as ${page.state(name).status}`);
  });

  const WORDS: Record<PublicEvent['event'], RegExp> = {
    accepted: /The request was received/,
    appended: /^Log entry \d+ The proof was appended to the log/,
    verified: /every check passed/,
    failed: /A check failed.*Validity is not asserted.*/,
    erased: /The signed document was erased.*Validity is no longer asserted/,
    lost: /The signed document was lost/,
    expired: /The validity of the .* ended/,
    revoked: /The (proof|passport) was revoked, by log entry \d+\. Hash of the reason: a{64}/,
  };

  it('dates the current validity from the latest verification', async () => {
    const { identifier } = page.state('long history');
    const { body } = await call(`/api/public/trust/${identifier}/timeline`);
    const again = (body as PublicHistory).events.at(-1);
    expect(again).toMatchObject({ event: 'verified', at: '2026-11-10T12:00:00.000Z' });
    expect(fact('Since', (await askFor(identifier)).text)).toBe('10 November 2026, 12:00:00 UTC');
  });

  it.each(['revoked', 'expired', 'revoked passport'])('dates the end of "%s"', async (name) => {
    const ended = name.startsWith('revoked') ? 'Revoked' : 'Expired';
    expect(fact(ended, (await ask(name)).text)).toBe('20 November 2026, 12:00:00 UTC');
  });

  it('is read from the verdict’s snapshot when a newer snapshot is published meanwhile', async () => {
    const world = new TestSnapshot();
    world.registry.addProofs(200);
    const proof = world.registry.addProof();
    world.registry.verify();
    const publisher = world.publisher();
    await publisher.runCycle();
    const { source, before: interrupt } = interruptible(world.directory, 'page');
    const publicServer = world.publicServer({ source });
    try {
      const server = await world.serve(publicServer);
      const beside = await world.serve(world.publicServer());
      const before = await callAt(beside, `/?id=${proof}`);
      interrupt(async () => {
        world.registry.revoke(proof);
        world.registry.verify();
        await publisher.runCycle();
        await publicServer.poller.refresh();
        expect(publicServer.poller.current!.log.size).toBeGreaterThan(204);
      });
      expect((await callAt(server, `/?id=${proof}`)).text).toBe(before.text);
      const after = await callAt(server, `/?id=${proof}`);
      expect(headline(after.text)).toBe('Sandbox: Revoked proof');
      expect(textOf(section('history-title', after.text))).toContain('The proof was revoked');
    } finally {
      await world.close();
    }
  });
});

describe('trust chain on the HTML page', () => {
  it.each(['revoked trust', 'long history'])(
    'shows the verdicts of the JSON chain for "%s"',
    async (name) => {
      const { identifier } = page.state(name);
      const { body } = await call(`/api/public/trust/${identifier}/chain`);
      const shown = items(section('chain-title', (await askFor(identifier)).text), 'reached');
      const { links } = body as PublicTrustChain;
      expect(shown).toHaveLength(links.length);
      links.forEach(({ verification_status: status, identifier: id }, i) => {
        expect(textOf(shown[i]!)).toMatch(status === null ? /in the chain$/ : SAID[status]!);
        expect(shown[i]!.includes(`<a href="/?id=${id}">`)).toBe(status !== null);
      });
    },
  );

  const SAID: Record<string, RegExp> = {
    VALID: /: Valid$/,
    PASS: /: Passes$/,
    VERIFIED: /: Verified$/,
    TRUST_ESTABLISHED: /: Trust established$/,
    REVOKED: /: Revoked$/,
  };
});

describe('JSON links on the HTML page', () => {
  it('lead to existing JSON views of each artifact', async () => {
    const proof = page.state('valid').identifier;
    for (const [name, views] of [
      ['valid', [`proof/${proof}/history`]],
      ['denied', [`proof/${page.state('denied').identifier}/history`]],
      ['certificate by reference', [`certificate/cert_${proof}/history`, 'trust-chain']],
      ['execution passport', [`passport/pass_${proof}/history`, 'trust-chain']],
      ['trust asset', [`trust/trust_${proof}/timeline`, 'chain', 'package']],
      ['shared and revoked', ['certificate/cert_', 'trust-chain']],
      ['package', []],
      ['not resolved', []],
      ['share token', []],
    ] as const) {
      const { text } = await ask(name);
      const links = [...section('programs-title', text).matchAll(/href="([^"]*)"/g)].map(
        ([, path]) => path!,
      );
      expect(links).toHaveLength(views.length + 2);
      views.forEach((view, i) => expect(links[i + 1]).toContain(view));
      expect(links.at(-1)).toBe('/docs');
      for (const path of links) expect((await call(path)).status).toBe(200);
      for (const path of links.slice(1, -1)) {
        expect((await call(path)).body).toMatchObject({
          verification_status: page.state(name).status,
        });
      }
    }
    expect((await call('/')).text).toContain('href="/docs"');
  });
});

describe('verdict page', () => {
  const ID = `pkg_${'a'.repeat(32)}`;

  /** The page of a package whose published body was changed by `change`. */
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
      isYoung: false,
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

  it('derives no verdict from the history and no event from the verdict', async () => {
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

  it.each(['x', 'share_token'])(
    'is not cacheable when an unknown parameter may contain a share token: %s',
    async (name) => {
      const { identifier } = page.state('shared');
      const { status, headers } = await call(`/?${name}=${identifier}`);
      expect(status).toBe(200);
      expect(headers['cache-control']).toBe('private, no-store');
      expect(headers['etag']).toBeUndefined();
      expect((await call('/')).headers['cache-control']).not.toContain('private');
    },
  );
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
  const DARK = ['share token', 'ended share token'];

  it.each([
    ['shared', 'valid'],
    ['shared denial', 'denied'],
    ['shared package', 'package with a revoked member'],
  ])('shows, for "%s", the page of "%s" with a note on sharing', async (name, other) => {
    const qr = (text: string): string =>
      only(/<svg class="qr".*?<path stroke[^>]* d="([^"]*)"/, text);
    const shared = await ask(name);
    const direct = await ask(other);
    expect(headline(shared.text)).toBe(headline(direct.text));
    for (const what of ['Status', 'Validity asserted', 'As of']) {
      expect(fact(what, shared.text)).toBe(fact(what, direct.text));
    }
    expect(textOf(shared.text)).toContain('You opened a share link');
    expect(textOf(direct.text)).not.toContain('You opened a share link');
    // The permanent link and its QR code name the artifact, not the token.
    expect(section('share-title', shared.text)).not.toContain('share_');
    expect(qr(shared.text)).toBe(qr(direct.text));
  });

  it('contains the token only as the identifier that was entered', async () => {
    for (const name of [...SHARED, ...DARK]) {
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

  it('is not cacheable and sends no Referer header', async () => {
    const tokens = [...SHARED, ...DARK].map((name) => page.state(name).identifier);
    const odd = [`${tokens[0]}x`, 'share_x', 'SHARE_x', encodeURIComponent('%73hare_x')];
    for (const identifier of [...tokens, ...odd, `share_${'x'.repeat(2000)}`, 'share_x&id=y']) {
      const { headers, text } = await askFor(identifier);
      expect(headers['cache-control']).toBe('private, no-store');
      expect(headers.etag).toBeUndefined();
      expect(headers['referrer-policy']).toBe('no-referrer');
      expect(only(/<title>([^<]*)<\/title>/, text)).not.toContain('hare_');
    }
  });

  it('lists the possible reasons for an unresolvable token without revealing the actual one', async () => {
    const [first, second] = DARK.map((name) => page.state(name).identifier);
    const pages = await Promise.all(
      [first!, second!].map(async (id) => (await askFor(id)).text.replaceAll(id, '…')),
    );
    expect(pages[0]).toBe(pages[1]);
    const shown = textOf(pages[0]!);
    expect(shown).toContain('This share link shows nothing.');
    for (const reason of ['may not exist', 'revoked', 'expired', 'not published']) {
      expect(shown).toContain(reason);
    }
    expect(shown).toContain('Which of these applies.');
    expect(pages[0]).not.toContain('class="qr"');
  });
});
