import type * as z from 'zod';
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
import type { PublicOptions } from '../options.js';
import { pathSegment, type PublicAnswer, readPublic } from './lookup.js';

/** Kinds of artifacts with views besides the verdict. */
export type ViewedKind = 'certificate' | 'passport' | 'trust';

const HISTORY = { certificate: 'history', passport: 'history', trust: 'timeline' } as const;
const CHAIN = { certificate: 'trust-chain', passport: 'trust-chain', trust: 'chain' } as const;

/** The artifact of a view. */
export interface ViewQuery {
  kind: ViewedKind;
  identifier: string;
}

/** `/history` of a certificate or passport, `/timeline` of a trust artifact: its status history. */
export function readHistoryHttp(
  options: PublicOptions,
  input: ViewQuery,
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
  return readView(options, input, { trust: 'package' }, trustPackageSchema);
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

async function readView<T>(
  options: PublicOptions,
  { kind, identifier }: ViewQuery,
  names: Partial<Record<ViewedKind, string>>,
  schema: z.ZodType<T>,
): Promise<PublicAnswer<T>> {
  const name = Object.hasOwn(names, kind) ? names[kind] : undefined;
  if (name === undefined) {
    const message = 'the kind must be one of certificate, passport, trust';
    throw new SdkError('invalid_input', message, { pointer: '/kind' });
  }
  return readPublic(options, `/api/public/${kind}/${pathSegment(identifier)}/${name}`, schema);
}
