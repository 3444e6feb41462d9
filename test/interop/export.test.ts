import { expect } from 'vitest';
import { toBase64Url } from '#protocol/bytes';
import type { JsonValue } from '#protocol/json';
import { verifyOffline, type OfflineTrust } from '#protocol/offline';
import { nativeCrypto } from '#runtime/crypto/node';
import { engineTest } from '../api/engine/setup.js';
import { admissionEnvelope } from '../fixtures/agent.js';
import { alterations } from '../fixtures/altered.js';
import { offlineVectors } from '../fixtures/offline-vectors/published.js';
import { hasPython, pythonLines } from '../fixtures/python.js';

/** The Python verifier is written from spec/ only, so a difference shows an error in spec/ or in a verifier. */
const it = engineTest({ scopes: ['admit', 'read', 'export'] });

const resultOf = (text: string, trust: OfflineTrust) => {
  const verified = verifyOffline(text, trust, nativeCrypto);
  if (!verified.decidable) return { undecidable: verified.cause };
  const { authentic, included, status, faults, disclosed, withheld } = verified;
  return { authentic, included, status, fault: faults[0]?.code, disclosed, withheld };
};

const sorted = (value: unknown) =>
  Object.entries(value as object)
    .filter(([, one]) => one !== undefined)
    .sort(([one], [other]) => (one < other ? -1 : 1));

/** The results of Python, which must equal those of TypeScript. */
async function agreed<Case extends { what: string }>(cases: Case[], own: (one: Case) => object) {
  const found = await pythonLines<object>('export.py', ['--lines'], cases);
  const differences = cases
    .map((one, i) => ({ ...one, python: found[i], own: own(one) }))
    .filter(({ python, own }) => JSON.stringify(sorted(python)) !== JSON.stringify(sorted(own)));
  expect(differences).toEqual([]);
  return found;
}

it.runIf(hasPython)(
  'Python > gives the same results as TypeScript for exports and receipt evidence of an engine, and for altered ones',
  async ({ setup }) => {
    const { log, registry } = setup;
    const { publicKey } = registry.admit.signer;
    const request = admissionEnvelope();
    const receipt = (await setup.post('/v1/agent/admissions', request)).json;
    const path = `/v1/proofs/${String(receipt['registry_proof_id'])}`;
    const unlogged = (await setup.get(`${path}/receipt-evidence`)).json;
    await setup.publish();
    const [exported, disclosing, evidence] = await Promise.all(
      ['export', 'export?disclose=arguments_hash', 'receipt-evidence'].map(
        async (name) => (await setup.get(`${path}/${name}`)).json as JsonValue,
      ),
    );
    const originals = [unlogged as JsonValue, exported!, disclosing!, evidence!];

    const pins = { log_vkey: log.vkey, log_origin: log.origin };
    const trust = { aep_keys: [toBase64Url(publicKey)], ...pins };
    const documents = [
      ...originals.map((document) => ({ what: 'unaltered', document })),
      ...[disclosing!, evidence!].flatMap((document) => [...alterations(document)]),
    ];
    const cases = documents.map(({ what, document }) => ({
      what,
      trust,
      export: JSON.stringify(document),
      ...(what === 'unaltered' && document !== disclosing ? { receipt } : {}),
    }));
    const own = { aepKeys: [publicKey], log: { vkey: log.vkey, origin: log.origin } };
    const found = await agreed(cases, (one) => resultOf(one.export, own));

    const genuine = { authentic: true, included: true };
    const { request_hash: requestHash } = receipt;
    const { arguments_hash: argumentsHash } = request;
    expect(found.filter((_, i) => cases[i]!.what === 'unaltered')).toMatchObject([
      { authentic: true, status: 'unknown', disclosed: { request_hash: requestHash }, withheld: 1 },
      { ...genuine, disclosed: { request_hash: requestHash }, withheld: 1 },
      { ...genuine, disclosed: { arguments_hash: argumentsHash }, withheld: 1 },
      { ...genuine, disclosed: { request_hash: requestHash }, withheld: 1 },
    ]);
  },
  60_000,
);

it.runIf(hasPython)(
  'Python > gives the same results as TypeScript for altered approvals',
  async () => {
    const named = ['approved', 'approved-with-ed25519', 'approval-rejected'];
    const valid = offlineVectors['valid/offline.json']!.filter(({ name }) => named.includes(name));
    const cases = valid.flatMap(({ export: text, trust }) => {
      const document = JSON.parse(text!) as { approval: JsonValue };
      return [...alterations(document.approval)].map(({ what, document: approval }) => ({
        ...{ what, trust },
        export: JSON.stringify({ ...document, approval }),
      }));
    });
    const accepted: string[] = [];
    await agreed(cases, ({ what, trust, export: text }) => {
      const log = { vkey: trust.log_vkey!, origin: trust.log_origin! };
      const result = resultOf(text, { aepKeys: trust.aep_keys as string[], log });
      if (result.included === true) accepted.push(what);
      return result;
    });
    expect(cases.length).toBeGreaterThan(500);
    expect(new Set(accepted)).toEqual(new Set(['/tlog_proof: null']));
  },
  60_000,
);
