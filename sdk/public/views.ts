import type * as z from 'zod';
import { resolveIdentifier } from '../../protocol/ids.js';
import {
  historySchema,
  trustChainSchema,
  trustPackageSchema,
  type PublicHistory,
  type PublicTrustChain,
  type PublicTrustPackage,
} from '../../protocol/schemas/facade.js';
import { publicKeysSchema, type PublicKeys } from '../../protocol/snapshot/keys.js';
import { SdkError } from '../errors.js';
import { unexpected } from '../http/answers.js';
import type { Answer } from '../http/attempt.js';
import type { PublicOptions } from '../options.js';
import { pathSegment, type PublicAnswer, readPublic, requireAbout } from './lookup.js';

/** Kinds of artifacts with views besides the verdict. */
export type ViewedKind = 'certificate' | 'passport' | 'trust';

const HISTORY = {
  proof: 'history',
  certificate: 'history',
  passport: 'history',
  trust: 'timeline',
} as const;
const CHAIN = { certificate: 'trust-chain', passport: 'trust-chain', trust: 'chain' } as const;

/** The artifact of a view. */
export interface ViewQuery {
  kind: ViewedKind;
  identifier: string;
}

/**
 * `/history` of a proof, certificate or passport, `/timeline` of a trust artifact: its status history.
 * A `revoked` event has the leaf index of the log entry that revokes the artifact.
 */
export function readHistoryHttp(
  options: PublicOptions,
  input: ViewQuery | { kind: 'proof'; identifier: string },
): Promise<PublicAnswer<PublicHistory>> {
  return readView(options, input, HISTORY, historySchema);
}

/** `/trust-chain`, or `/chain` of a trust artifact: each stage with its verdict. */
export function readTrustChainHttp(
  options: PublicOptions,
  input: ViewQuery,
): Promise<PublicAnswer<PublicTrustChain>> {
  return readView(options, input, CHAIN, trustChainSchema);
}

/**
 * `/package` of a trust artifact: lookup response, history, chain and the evidence of inclusion in
 * the log, all of one snapshot. `record.evidence` is null for an unresolved id.
 */
export function readTrustPackageHttp(
  options: PublicOptions,
  { trust_id: identifier }: { trust_id: string },
): Promise<PublicAnswer<PublicTrustPackage>> {
  const input = { kind: 'trust', identifier } as const;
  return readView(options, input, { trust: 'package' }, trustPackageSchema, (answer, record) => {
    const { facade, history, chain, evidence } = record;
    for (const part of [facade, history, chain]) requireAbout(answer, part, identifier, 'trust');
    const proofId = resolveIdentifier(identifier)?.proof_id;
    if (evidence !== null && evidence.log_entry.proof_id !== proofId) {
      throw unexpected(answer, 'the evidence is about another proof');
    }
  });
}

/**
 * `GET /api/public/keys`: the keys that the registry publishes. Keys and proofs come from the same
 * source: compare the keys with another source before you trust them.
 */
export async function readPublicKeysHttp(
  options: PublicOptions,
): Promise<PublicAnswer<PublicKeys>> {
  return readPublic(options, '/api/public/keys', publicKeysSchema);
}

async function readView<T extends PublicHistory | PublicTrustChain | PublicTrustPackage>(
  options: PublicOptions,
  { kind, identifier }: Parameters<typeof readHistoryHttp>[1],
  names: Partial<Record<ViewedKind | 'proof', string>>,
  schema: z.ZodType<T>,
  checkParts: (answer: Answer, record: T) => void = () => undefined,
): Promise<PublicAnswer<T>> {
  const name = Object.hasOwn(names, kind) ? names[kind] : undefined;
  if (name === undefined) {
    const message = `the kind must be one of ${Object.keys(names).join(', ')}`;
    throw new SdkError('invalid_input', message, { pointer: '/kind' });
  }
  const path = `/api/public/${kind}/${pathSegment(identifier)}/${name}`;
  return readPublic(options, path, schema, (answer, record) => {
    requireAbout(answer, record, identifier, kind);
    checkParts(answer, record);
  });
}
