import { afterAll, beforeAll, expect, it } from 'vitest';
import { lookupAt } from '#api/public/lookup/routes';
import { hashHex } from '#protocol/hash';
import { answerFromEvidence } from '#protocol/evidence/answer';
import { proveState } from '#protocol/evidence/verify';
import { readLog } from '#protocol/offline/trust';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import { callAt, postLookup } from '../../fixtures/public-call.js';
import { everyPageState, type PageStates } from '../../fixtures/public-page.js';
import { ORIGIN } from '../../fixtures/snapshot.js';

let world: PageStates;
beforeAll(async () => {
  world = await everyPageState();
});
afterAll(() => world.snapshot.close());

const crypto = { sha256: nativeSha256, verify: nativeVerify };
const evidenceOf = (id: string) =>
  callAt(world.server, `/api/public/evidence/${encodeURIComponent(id)}`);

it('evidence > proves the answer of every lookup, in every status, found or not', async () => {
  const { snapshot, server, states } = world;
  const log = readLog(nativeSha256, { vkey: snapshot.logVkey, origin: ORIGIN })!;
  expect(new Set(states.map(({ status }) => status)).size).toBeGreaterThan(7);
  for (const { name, identifier, jsonUrl } of states) {
    const { status, text } = await evidenceOf(identifier);
    expect(status).toBe(200);
    const now = snapshot.clock.now();
    const proved = proveState(crypto, text, { identifier, log, now });
    expect(proved.outdated).toBeNull();
    const { route } = lookupAt(jsonUrl)!;
    const { response } = answerFromEvidence(nativeSha256, proved, route);
    const { body } = await callAt(server, jsonUrl);
    expect(response, name).toEqual(body);
  }
});

it('evidence > is the same for GET and POST, and shorter than 4 KiB', async () => {
  const { identifier } = world.state('valid');
  const { text, headers } = await evidenceOf(identifier);
  expect(text.length).toBeLessThan(4096);
  expect(headers.etag).toBeDefined();
  const posted = await postLookup(
    world.server,
    { proof_id: identifier },
    {},
    '/api/public/evidence',
  );
  expect(posted.text).toBe(text);
});

it('evidence > contains only the hash of a share token, and must not be stored', async () => {
  const { identifier } = world.state('shared');
  for (const reply of [
    await evidenceOf(identifier),
    await postLookup(world.server, { share_token: identifier }, {}, '/api/public/evidence'),
  ]) {
    expect(reply.headers['cache-control']).toBe('private, no-store');
    expect(reply.headers.etag).toBeUndefined();
    expect(reply.text).not.toContain(identifier);
    expect(reply.body).toMatchObject({ identifier: hashHex(nativeSha256, identifier) });
  }
});
