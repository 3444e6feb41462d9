import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { lookupUrl } from '#api/public/page/ask';
import { readAnswer } from '#api/public/page/relayed';
import { verdictView } from '#api/public/page/verdict-view';
import { directorySource } from '#api/public/snapshot/source';
import type { PublicEvent } from '#protocol/schemas/proof-view';
import type { PublicHistory, PublicTrustChain } from '#protocol/schemas/public-views';
import { STATUSES } from '#protocol/status';
import { formatTime } from '#protocol/time';
import { fact, headline, only, section, textOf, times } from './helpers/page-text.js';
import { callAt, type Call, type Reply } from './helpers/public-call.js';
import { everyPageState, type PageStates } from './helpers/public-page.js';
import { TestSnapshot } from './helpers/snapshot.js';

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

/** What the markup of a list has in its items, in order. */
const items = (markup: string, kind: string): string[] =>
  [...markup.matchAll(new RegExp(`<li class="${kind}[^"]*">([\\s\\S]*?)</li>`, 'g'))].map(
    ([, item]) => item!,
  );

describe('the history', () => {
  it.each([
    ['certificate', 'certificate', 'history'],
    ['revoked passport', 'passport', 'history'],
    ['expired certificate', 'certificate', 'history'],
    ['revoked trust', 'trust', 'timeline'],
    ['long history', 'trust', 'timeline'],
  ])('of "%s" has the events of its JSON, in its order', async (name, kind, view) => {
    const { identifier } = page.state(name);
    const { body } = await call(`/api/public/${kind}/${identifier}/${view}`);
    const { events } = body as PublicHistory;
    const told = section('history-title', (await askFor(identifier)).text);
    const expected = events.flatMap((event) => ('at' in event ? [event.at] : []));
    expect(times(told)).toEqual([...expected, ISSUED]);
    const lines = items(told, 'event').map(textOf);
    expect(lines).toHaveLength(events.length + 1);
    events.forEach((event, i) => expect(lines[i]).toMatch(WORDS[event.event]));
    expect(lines.at(-1)).toContain(`Published as ${page.state(name).status}`);
  });

  const WORDS: Record<PublicEvent['event'], RegExp> = {
    accepted: /The request was received/,
    appended: /^Log entry \d+ The proof was put into the log/,
    verified: /every check passed/,
    failed: /A check did not pass.*Nothing is asserted.*Not passed: aep_hash/,
    erased: /What was signed was erased.*Nothing is asserted any more/,
    expired: /The time of the .* was found to be over/,
    revoked: /The (proof|passport) was revoked, by log entry \d+\. Hash of the reason: a{64}/,
  };

  it('names what ended it and when, and no entry that is not there', async () => {
    const { text } = await ask('revoked trust');
    const told = section('history-title', text);
    expect(textOf(told)).toContain('The passport was revoked');
    const links = [...told.matchAll(/href="(\/log\/entry\/\d+)"/g)].map(([, path]) => path!);
    expect(links).toHaveLength(2);
    for (const path of links) expect((await call(path)).status).toBe(200);
    expect(fact('Revoked', text)).toBe('20 November 2026, 12:00:00 UTC');
    expect(fact('Found expired', (await ask('expired')).text)).toMatch(/^20 November 2026/);
    for (const name of ['valid', 'not confirmed', 'proof of a revoked passport']) {
      expect((await ask(name)).text).not.toMatch(/<dt>(Revoked|Found expired)/);
    }
  });

  it('says since when it is asserted: since it was verified again', async () => {
    const { identifier } = page.state('long history');
    const { body } = await call(`/api/public/trust/${identifier}/timeline`);
    const again = (body as PublicHistory).events.at(-1);
    expect(again).toMatchObject({ event: 'verified', at: '2026-11-10T12:00:00.000Z' });
    expect(fact('Since', (await askFor(identifier)).text)).toBe('10 November 2026, 12:00:00 UTC');
  });

  it('is the same for all who ask for the same, by token too', async () => {
    const direct = await ask('valid');
    const shared = await ask('shared');
    for (const id of ['history-title', 'chain-title', 'basis-title', 'downloads-title']) {
      expect(section(id, shared.text)).toBe(section(id, direct.text));
    }
  });

  it('is of the snapshot that the verdict is of, whatever is published meanwhile', async () => {
    const world = new TestSnapshot();
    const proof = world.registry.addProof();
    world.registry.verify();
    const publisher = world.publisher();
    await publisher.tick();
    const source = directorySource(world.directory);
    let meanwhile: (() => Promise<void>) | null = null;
    const facade = world.facade({
      source: {
        ...source,
        read: async (wanted) => {
          const work = meanwhile;
          meanwhile = null;
          await work?.();
          return source.read(wanted);
        },
      },
    });
    try {
      const server = await world.serve(facade);
      const before = await callAt(server, `/?id=${proof}`);
      meanwhile = async () => {
        world.registry.revoke(proof);
        world.registry.verify();
        await publisher.tick();
        await facade.follower.refresh();
        expect(facade.follower.current!.opened.manifest.tree_size).toBe(3);
      };
      expect((await callAt(server, `/?id=${proof}`)).text).toBe(before.text);
      const after = await callAt(server, `/?id=${proof}`);
      expect(headline(after.text)).toBe('Sandbox: Revoked proof');
      expect(textOf(section('history-title', after.text))).toContain('The proof was revoked');
    } finally {
      await world.close();
    }
  });
});

describe('the chain', () => {
  it.each(['revoked trust', 'long history'])(
    'of "%s" has the verdicts of its JSON',
    async (name) => {
      const { identifier } = page.state(name);
      const { body } = await call(`/api/public/trust/${identifier}/chain`);
      const told = items(section('chain-title', (await askFor(identifier)).text), 'reached');
      const { links } = body as PublicTrustChain;
      expect(told).toHaveLength(links.length);
      links.forEach(({ verification_status: status, identifier: id }, i) => {
        expect(textOf(told[i]!)).toMatch(status === null ? /in the chain$/ : SAID[status]!);
        expect(told[i]!.includes(`<a href="/?id=${id}">`)).toBe(status !== null);
      });
    },
  );

  it('of a denial calls nothing good but the proof of it', async () => {
    const told = section('chain-title', (await ask('denied')).text);
    expect(textOf(told)).toContain('in the chain: Valid, of the denial');
    expect(told).not.toContain('good');
  });

  const SAID: Record<string, RegExp> = {
    VALID: /: Valid$/,
    PASS: /: Passes$/,
    VERIFIED: /: Verified$/,
    TRUST_ESTABLISHED: /: Trust established$/,
    REVOKED: /: Revoked$/,
  };
});

describe('what programs get', () => {
  it('is linked from the page of each artifact that has it, and answers', async () => {
    const proof = page.state('valid').identifier;
    for (const [name, views] of [
      ['valid', []],
      ['denied', []],
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

describe('a package', () => {
  it.each([
    'package',
    'package with a revoked member',
    'package with an expired member',
    'package that is not confirmed',
    'large package',
    'shared package',
  ])('that is "%s" lists its members, with what the body says of each', async (name) => {
    const { references } = await bodyOf(name);
    const { text } = await ask(name);
    const told = only(/<ol class="members">([\s\S]*)<\/ol>\s*<\/section>/, text);
    const rows = [...told.matchAll(/<li class="(\w+)">\s*<svg([\s\S]*?)<\/li>/g)];
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

  it('leads to each member, whose page says the same', async () => {
    const { references } = await bodyOf('package with a revoked member');
    for (const { trust_id, verification_status } of references.members) {
      expect(fact('Status', (await askFor(trust_id)).text)).toBe(verification_status);
    }
  });

  it('shows at once what does not hold: in the card, and at the head of the list', async () => {
    const { text } = await ask('large package');
    expect(fact('Members', text)).toBe('18 (1 revoked, 1 not confirmed, 16 trust established)');
    const visible = text.slice(0, text.indexOf('<details>'));
    expect(visible).toMatch(/>17\.<\/span>\s*<span class="name">Revoked</);
    expect(text.indexOf('members-title')).toBeLessThan(text.indexOf('says-not'));
    expect(fact('Members', (await ask('package')).text)).toBe('3 (all trust established)');
  });

  it('has a members hash to copy, and no history or chain but its members’', async () => {
    const { text } = await ask('package');
    expect(text).toMatch(/data-copy="[0-9a-f]{64}"\s+data-what="members hash"/);
    expect(times(section('history-title', text))).toEqual([ISSUED]);
    expect(textOf(section('history-title', text))).toContain(
      'Each member has a history of its own',
    );
    expect(text).not.toContain('id="ids-title"');
  });
});

describe('a share link', () => {
  const SHARED = ['shared', 'shared denial', 'shared and revoked', 'shared package'];
  const DARK = ['share token', 'ended share token'];

  it.each([
    ['shared', 'valid'],
    ['shared denial', 'denied'],
    ['shared package', 'package with a revoked member'],
  ])(
    'that is "%s" shows what the page of "%s" shows, and says how it came',
    async (name, other) => {
      const shared = await ask(name);
      const direct = await ask(other);
      expect(headline(shared.text)).toBe(headline(direct.text));
      for (const what of ['Status', 'Validity asserted', 'As of']) {
        expect(fact(what, shared.text)).toBe(fact(what, direct.text));
      }
      expect(textOf(shared.text)).toContain('Shared with you by a link');
      expect(textOf(direct.text)).not.toContain('Shared with you');
    },
  );

  it('is passed on as the lasting one: no token is in the link or the QR code', async () => {
    const qr = (text: string): string => only(/<svg\s+class="qr"[\s\S]*?<path d="([^"]*)"/, text);
    for (const [name, other] of [
      ['shared', 'valid'],
      ['shared denial', 'denied'],
      ['shared package', 'package with a revoked member'],
    ] as const) {
      const { text } = await ask(name);
      expect(section('share-title', text)).not.toContain('share_');
      expect(qr(text)).toBe(qr((await ask(other)).text));
    }
  });

  it('is on its page where it was asked for, and nowhere else', async () => {
    for (const name of [...SHARED, ...DARK]) {
      const { identifier, jsonUrl } = page.state(name);
      const { text } = await ask(name);
      const rest = text
        .replace(`value="${identifier}"`, '')
        .replace(`<bdi>${identifier}</bdi>`, '')
        .replace(`data-copy="${identifier}"`, '')
        .replace(`href="${jsonUrl}"`, '');
      expect(rest).not.toContain('share_');
      expect(rest).not.toContain(identifier.slice('share_'.length));
    }
    for (const { name, identifier } of page.states.filter(
      (one) => !/^share_/.test(one.identifier),
    )) {
      expect.soft((await askFor(identifier)).text, name).not.toMatch(/share_\w/);
    }
  });

  it('is for no cache, and no other site is told of it', async () => {
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

  it('that shows nothing says what that can mean, and not which it is', async () => {
    const [first, second] = DARK.map((name) => page.state(name).identifier);
    const pages = await Promise.all(
      [first!, second!].map(async (id) => (await askFor(id)).text.replaceAll(id, '…')),
    );
    expect(pages[0]).toBe(pages[1]);
    const told = textOf(pages[0]!);
    expect(told).toContain('This share link shows nothing.');
    for (const reason of ['no such link', 'revoked', 'over', 'not published']) {
      expect(told).toContain(reason);
    }
    expect(told).toContain('Which of these it is.');
    expect(pages[0]).not.toContain('class="qr"');
  });

  it('is in no log line, whatever fails', async () => {
    const lines: string[] = [];
    const log = pino({ level: 'trace' }, { write: (text: string) => void lines.push(text) });
    const source = directorySource(page.snapshot.directory);
    let broken = false;
    const facade = page.snapshot.facade({
      log,
      source: {
        ...source,
        read: (wanted) => {
          if (broken) throw new Error('the disk is gone');
          return source.read(wanted);
        },
      },
    });
    const server = await page.snapshot.serve(facade);
    broken = true;
    const { identifier } = page.state('shared');
    const { status, headers } = await callAt(server, `/?id=${identifier}`);
    expect(status).toBe(503);
    expect(headers['cache-control']).toBe('private, no-store');
    expect(lines.join()).toContain('the disk is gone');
    expect(lines.join()).not.toContain(identifier.slice('share_'.length));
  });
});

describe('the page computes nothing', () => {
  const ID = `pkg_${'a'.repeat(32)}`;

  /** The page about a package whose body is changed in some way, as if it were published like that. */
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
      jsonUrl: lookupUrl(ID),
      base: null,
      issuedAt: ISSUED,
      treeSize: 3,
      window: 1,
    }).main.text;
  }

  const say = (told: object, status: string): void => {
    const asserts = /^(VALID|VERIFIED|PASS|TRUST_ESTABLISHED)$/.test(status);
    Object.assign(told, { verification_status: status, can_assert_validity: asserts });
  };

  it.each(STATUSES)('of a package: %s stands, whatever its members say', async (status) => {
    for (const ofMembers of STATUSES) {
      const text = await packagePage(({ verification, references }) => {
        say(verification, status);
        for (const member of references.members) say(member, ofMembers);
      });
      expect(fact('Status', text)).toBe(status);
      const rows = [...text.matchAll(/<code class="detail">(\w+)</g)].map(([, told]) => told);
      expect(rows).toEqual([ofMembers, ofMembers, ofMembers]);
      const asserts = /^(VALID|VERIFIED|PASS|TRUST_ESTABLISHED)$/.test(status);
      expect(fact('Validity asserted', text)).toBe(asserts ? 'Yes' : 'No');
      expect(text.includes('class="verdict good"')).toBe(asserts);
    }
  });

  it('of a history: neither does it make a verdict, nor a verdict an event', async () => {
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

    say(proof.verification, 'REVOKED');
    const without = pageOf(proof, [{ event: 'accepted', at }]);
    expect(fact('Status', without)).toBe('REVOKED');
    expect(without).not.toContain('<dt>Revoked</dt>');
    expect(items(section('history-title', without), 'event')).toHaveLength(2);
    expect(textOf(without)).toContain('Since when it is revoked, nothing here says.');
  });

  it('and shows no body that it does not understand, or that contradicts itself', async () => {
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

  it.each(['x', 'share_token'])('stays private under a name that is not read: %s', async (name) => {
    const { identifier } = page.state('shared');
    const { status, headers } = await call(`/?${name}=${identifier}`);
    expect(status).toBe(200);
    expect(headers['cache-control']).toBe('private, no-store');
    expect(headers['etag']).toBeUndefined();
    expect((await call('/')).headers['cache-control']).not.toContain('private');
  });
});
