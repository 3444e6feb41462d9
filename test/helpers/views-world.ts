import { expect } from 'vitest';
import { facadeOf } from '#api/public/views/published';
import { fromHex } from '#protocol/bytes';
import { idsOf } from '#protocol/ids';
import { facadeSchema, type Facade } from '#protocol/schemas/facade';
import {
  historySchema,
  trustChainSchema,
  trustPackageSchema,
  type PublicHistory,
  type PublicTrustChain,
  type PublicTrustPackage,
} from '#protocol/schemas/public-views';
import { encodeRecord, recordBody, type RecordTexts } from '#protocol/snapshot/record';
import { canAssertValidity, TRUST_CHAIN_SEQUENCE, type ArtifactKind } from '#protocol/status';
import { formatTime } from '#protocol/time';
import type { HttpServer } from '#runtime/http/server';
import { callAt, type Call, type Reply } from './public-call.js';
import { proofIdAt, START, TestSnapshot } from './snapshot.js';

/** The views of each kind that has any, and the ids that it is found by. */
export const KINDS = [
  {
    kind: 'certificate',
    history: 'history',
    chain: 'trust-chain',
    ids: ['cert_', 'certref_', 'asset_'],
  },
  {
    kind: 'passport',
    history: 'history',
    chain: 'trust-chain',
    ids: ['pass_', 'passref_', 'execpass_'],
  },
  { kind: 'trust', history: 'timeline', chain: 'chain', ids: ['trust_', 'trustref_', 'asset_'] },
] as const;
export type Kind = (typeof KINDS)[number]['kind'];
export const unknown = proofIdAt(1_700_000_000_000, 'unknown');

/** A facade over one proof of everything that may become of one, and its views as they are read. */
export class ViewsWorld {
  readonly snapshot = new TestSnapshot();
  readonly plain: string;
  readonly denied: string;
  readonly revoked: string;
  readonly certificateRevoked: string;
  readonly passportExpired: string;
  readonly partsExpired: string;
  readonly failed: string;
  /** Has the hashes of the plain one. */
  readonly twin: string;
  server!: HttpServer;

  constructor() {
    const { registry } = this.snapshot;
    this.plain = registry.addProof();
    this.denied = registry.addProof({ effect: 'DENY' });
    this.revoked = registry.addProof();
    this.certificateRevoked = registry.addProof();
    this.passportExpired = registry.addProof();
    this.partsExpired = registry.addProof();
    this.failed = registry.addProof();
    const { aepHash, proofRecordHash } = this.leafOf(this.plain);
    this.twin = registry.addProof({ aepHash, proofRecordHash });
    registry.verify();
  }

  async open(): Promise<void> {
    const { snapshot } = this;
    const { registry, clock } = snapshot;
    const publisher = snapshot.publisher({ recentLookupLimit: 1 });
    await publisher.runCycle();
    clock.at += 1000;
    registry.revoke(this.revoked);
    registry.revoke(this.certificateRevoked, 'certificate');
    registry.verify();
    registry.judge(this.passportExpired, { expired: ['passport'] });
    registry.judge(this.partsExpired, { expired: ['certificate', 'trust'] });
    registry.judge(this.failed, { outcome: 'fail' });
    await publisher.runCycle();
    this.server = await snapshot.serve(snapshot.facade());
  }

  close(): Promise<void> {
    return this.snapshot.close();
  }

  readonly call = (path: string, options?: Call): Promise<Reply> =>
    callAt(this.server, path, options);

  readonly verdictOn = async (kind: Kind | 'proof', id: string): Promise<Facade> => {
    const { body } = await this.call(`/api/public/verify/${kind}/${id}`);
    return facadeSchema.parse(body);
  };

  readonly historyOn = async (kind: Kind, id: string): Promise<PublicHistory> => {
    const path = KINDS.find((one) => one.kind === kind)!.history;
    const { status, body } = await this.call(`/api/public/${kind}/${id}/${path}`);
    expect(status).toBe(200);
    const history = historySchema.parse(body);
    expect(history).toEqual(body);
    return history;
  };

  readonly chainOn = async (kind: Kind, id: string): Promise<PublicTrustChain> => {
    const path = KINDS.find((one) => one.kind === kind)!.chain;
    const { status, body } = await this.call(`/api/public/${kind}/${id}/${path}`);
    expect(status).toBe(200);
    const chain = trustChainSchema.parse(body);
    expect(chain).toEqual(body);
    return chain;
  };

  readonly packageOn = async (id: string, from = this.server): Promise<PublicTrustPackage> => {
    const { status, body } = await callAt(from, `/api/public/trust/${id}/package`);
    expect(status).toBe(200);
    const all = trustPackageSchema.parse(body);
    expect(all).toEqual(body);
    return all;
  };

  readonly leafOf = (proofId: string) => {
    const { all } = this.snapshot.registry;
    const leaf = all.find((one) => one.kind === 'proof' && one.proofId === proofId);
    if (leaf?.kind !== 'proof') throw new Error(`no leaf of ${proofId}`);
    return leaf;
  };

  /** A record of a proof as if it had been published with these statuses, and its trust artifact. */
  readonly published = (
    proofId: string,
    statuses: Partial<Record<ArtifactKind, string>>,
    integrity: Record<string, unknown> = {},
  ) => {
    const part = (status = 'VERIFIED'): string =>
      `"verification":${JSON.stringify({ verification_status: status, can_assert_validity: canAssertValidity(status) })},"artifact":{`;
    const parts: RecordTexts['parts'] = {
      proof: part(statuses.proof),
      passport: part(statuses.passport),
      certificate: part(statuses.certificate),
      trust: part(statuses.trust),
    };
    const { leafIndex, aepHash, proofRecordHash } = this.leafOf(proofId);
    const rest = {
      trust_chain: { available: true, sequence: TRUST_CHAIN_SEQUENCE },
      references: idsOf(proofId),
      integrity: {
        leaf_index: leafIndex,
        aep_hash: aepHash,
        proof_record_hash: proofRecordHash,
        accepted_at: formatTime(START),
        ...integrity,
      },
    };
    const tail = `},${JSON.stringify(rest).slice(1)}`;
    const id = fromHex(proofId);
    const bytes = encodeRecord({ id: proofId, parts, tail });
    const resolved = {
      kind: 'trust',
      matchedOn: 'trust_id',
      record: { id, bytes, digest: new Uint8Array(16) },
      body: recordBody(bytes, id, 'trust')!,
    } as const;
    return { resolved, facade: facadeOf(resolved, `trust_${proofId}`) };
  };
}

/** What every view of an artifact begins with. */
export function membersOf(facade: Facade) {
  const { artifact_kind, identifier, lookup, verification } = facade;
  const { verification_status, can_assert_validity } = verification;
  return { artifact_kind, identifier, lookup, verification_status, can_assert_validity };
}
