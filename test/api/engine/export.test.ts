import { pino } from 'pino';
import { describe, expect } from 'vitest';
import { Problem } from '#api/engine/http/problem';
import { vkeyFor } from '#api/engine/proofs/inclusion';
import { formatVkey } from '#protocol/note';
import { fromBase64, toBase64Url } from '#protocol/bytes';
import { canonicalBytes } from '#protocol/json';
import { documentHash, hashHex } from '#protocol/hash';
import { verifyOffline } from '#protocol/offline';
import { proofExportSchema, type ProofExport } from '#protocol/schemas/proof-export';
import { AEP_PAYLOAD_TYPE } from '#protocol/schemas/aep';
import { nativeCrypto, nativeSha256 } from '#runtime/crypto/node';
import { admissionEnvelope } from '../../fixtures/agent.js';
import { headersFor } from '../../fixtures/engine.js';
import { expectProblem } from '../../fixtures/problem.js';
import { readPdf } from '../../fixtures/pdf.js';
import { testKey } from '../../fixtures/snapshot.js';
import { checkpoint, logVkey, ORIGIN } from '../../fixtures/worked-log.js';
import { engineTest, type Setup } from './setup.js';

const it = engineTest({ scopes: ['admit', 'export', 'verify'] });

const exportOf = ({ get }: Setup, id: string, query = '', headers: Record<string, string> = {}) =>
  get(`/v1/proofs/${id}/export${query}`, headers);

async function published({ admitOne, publish }: Setup): Promise<string> {
  const id = await admitOne();
  await publish();
  return id;
}

describe('GET /v1/proofs/{proof_id}/export', () => {
  it('contains everything that offline verification of a proof needs', async ({ setup }) => {
    const id = await published(setup);
    const reply = await exportOf(setup, id);
    expect(reply.status).toBe(200);
    expect(reply.headers['content-type']).toBe('application/json');
    expect(reply.headers['content-disposition']).toBe(`attachment; filename="proof-${id}.json"`);
    const document = proofExportSchema.parse(reply.json);
    expect(reply.bytes).toEqual(Buffer.from(canonicalBytes(document)));
    expect(document).toMatchObject({
      proof_id: id,
      log_vkey: setup.log.vkey,
      key: { entry: { public_key: toBase64Url(setup.registry.admit.signer.publicKey) } },
      verdict: { verification_status: 'VALID', can_assert_validity: true },
    });
    expect(verifyOffline(document, setup.pins, nativeCrypto)).toMatchObject({
      authentic: true,
      included: true,
      status: `unknown since checkpoint ${document.inclusion.tree_size}`,
    });
  });

  it('does not log a busy PDF renderer as an error', async ({ setup }) => {
    const id = await published(setup);
    let logged = '';
    const log = pino({ level: 'error' }, { write: (line) => void (logged += line) });
    const pdf = { render: () => Promise.reject(new Problem('renderer_busy')) };
    await setup.withEngine({ log, pdf, logVkey: setup.log.vkey }, async ({ call }) => {
      const path = `/v1/proofs/${id}/export?format=pdf`;
      const reply = await call({ method: 'GET', path, headers: headersFor(setup.key) });
      expectProblem(reply, 503, 'renderer_busy');
    });
    expect(logged).toBe('');
  });

  it('shows a revocation at once, with a checkpoint that includes it', async ({ setup }) => {
    const id = await published(setup);
    const before = await exportOf(setup, id);
    const at = await setup.revoke(id, 'certificate');
    await setup.log.publish();
    const document = proofExportSchema.parse((await exportOf(setup, id)).json);
    expect(document.verdict).toEqual({
      ...(before.json as unknown as ProofExport).verdict,
      artifacts: { proof: 'VALID', passport: 'PASS', certificate: 'REVOKED', trust: 'REVOKED' },
      log_size: at + 1,
    });
    expect(document.inclusion.tree_size).toBe(at + 1);
  });

  it('returns the AEP bytes exactly as they were hashed', async ({ setup }) => {
    const id = await published(setup);
    const document = proofExportSchema.parse((await exportOf(setup, id)).json);
    const reply = await exportOf(setup, id, '?format=aep-json');
    expect(reply.headers['content-type']).toBe(AEP_PAYLOAD_TYPE);
    expect(reply.headers['content-disposition']).toBe(`attachment; filename="aep-${id}.json"`);
    expect(hashHex(nativeSha256, reply.bytes)).toBe(document.entry.aep_hash);
    expect(reply.bytes).toEqual(Buffer.from(fromBase64(document.envelope.payload)));
    const asJson = await exportOf(setup, id, '?format=aep-json', { Accept: 'application/json' });
    expect(asJson.headers['content-type']).toBe('application/json');
    expect(asJson.bytes).toEqual(reply.bytes);
  });

  it('attaches the JSON export to a PDF, and the attachment verifies', async ({ setup }) => {
    const id = await published(setup);
    const { bytes, headers, status } = await exportOf(setup, id, '?format=pdf');
    expect(status).toBe(200);
    expect(headers).toMatchObject({
      'content-type': 'application/pdf',
      'content-disposition': `attachment; filename="${id}.pdf"`,
      'cache-control': 'private, no-cache',
    });
    const { pages, links, attachments } = await readPdf(bytes);
    expect(pages[0]).toContain('Sandbox · Admitted · proof VALID');
    expect(links).toEqual([`https://registry.example/?id=${id}`]);
    expect(Object.keys(attachments)).toEqual([`${id}.json`]);
    const inside = Buffer.from(attachments[`${id}.json`] ?? []);
    expect(inside).toEqual((await exportOf(setup, id)).bytes);
    const verdict = await setup.post('/v1/proofs/verify', inside);
    expect(verdict.json).toMatchObject({ status: 'VALID', can_assert_validity: true });
    const undisclosed = await readPdf((await exportOf(setup, id, '?format=pdf&disclose=')).bytes);
    const attached = Buffer.from(undisclosed.attachments[`${id}.json`] ?? []).toString();
    expect(JSON.parse(attached)).toMatchObject({ disclosures: [] });
  });
});

it('export > names the log key that signed the checkpoint, before and after a rotation of the key', () => {
  const newer = formatVkey(nativeSha256, ORIGIN, testKey().publicKey);
  for (const [current, retired, expected] of [
    [newer, [logVkey], logVkey],
    [logVkey, [newer], logVkey],
    [newer, ['nonsense'], newer],
    [null, [], null],
  ] as const) {
    expect(vkeyFor(checkpoint, { logVkey: current, retiredLogVkeys: retired })).toBe(expected);
  }
});

const ARGUMENTS_HASH = documentHash(nativeSha256, { amount: 480 });

async function withArguments({ post, publish }: Setup): Promise<string> {
  const body = admissionEnvelope({ arguments_hash: ARGUMENTS_HASH });
  const { json } = await post('/v1/agent/admissions', body);
  await publish();
  return String(json['registry_proof_id']);
}

async function disclosing({ get }: Setup, proofId: string, names: string): Promise<ProofExport> {
  const { json } = await get(`/v1/proofs/${proofId}/export?disclose=${names}`);
  return proofExportSchema.parse(json);
}

describe('export with disclosed values', () => {
  it('proves these values and no others, offline and to the engine', async ({ setup }) => {
    const document = await disclosing(setup, await withArguments(setup), 'arguments_hash');
    const disclosed = { arguments_hash: ARGUMENTS_HASH };
    expect(verifyOffline(document, setup.pins, nativeCrypto)).toMatchObject({
      authentic: true,
      included: true,
      disclosed,
      withheld: 1,
    });
    const verdict = await setup.post('/v1/proofs/verify', document);
    expect(verdict.json).toMatchObject({ status: 'VALID', disclosed, withheld: 1 });
    const disclosures = document.disclosures.map(([salt, name]) => [salt, name, '0'.repeat(64)]);
    const altered = await setup.post('/v1/proofs/verify', { ...document, disclosures });
    expect(altered.json).toMatchObject({ status: 'INVALID', cause: 'altered', disclosed: null });
  });

  it('rejects names that the proof does not commit to, an empty name and a second list', async ({
    setup,
  }) => {
    const proofId = await withArguments(setup);
    expect((await disclosing(setup, proofId, '')).disclosures).toEqual([]);
    for (const [query, why] of [
      ['disclose=arguments_hash,amount', 'amount'],
      ['disclose=arguments_hash,', 'expected names separated by commas'],
      ['disclose=arguments_hash&disclose=amount', 'The parameter "disclose" is repeated'],
    ]) {
      const { status, json } = await setup.get(`/v1/proofs/${proofId}/export?${query!}`);
      expect([status, json['code']]).toEqual([400, 'invalid_query']);
      expect(json['detail']).toContain(why);
    }
  });
});
