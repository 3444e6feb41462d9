import type * as z from 'zod';
import {
  historySchema,
  trustChainSchema,
  trustPackageSchema,
  type PublicHistory,
  type PublicTrustChain,
  type PublicTrustPackage,
} from '../../protocol/schemas/public-views.js';
import { publicKeysSchema, type PublicKeys } from '../../protocol/snapshot/keys.js';
import { SdkError } from '../errors.js';
import { withDeadline } from '../http/deadline.js';
import type { PublicOptions } from '../options.js';
import { segment } from './lookup.js';
import { openRegistry, type PublicAnswer } from './registry.js';

/** What has views beside its verdict. */
export type ViewedKind = 'certificate' | 'passport' | 'trust';

const HISTORY = { certificate: 'history', passport: 'history', trust: 'timeline' } as const;
const CHAIN = { certificate: 'trust-chain', passport: 'trust-chain', trust: 'chain' } as const;

/** Of which artifact. */
export interface ViewQuery {
  kind: ViewedKind;
  identifier: string;
}

/** `/history` of a certificate or passport, `/timeline` of a trust artifact: what became of it. */
export function readHistoryHttp(
  options: PublicOptions,
  input: ViewQuery,
): Promise<PublicAnswer<PublicHistory>> {
  return view(options, input, HISTORY, historySchema);
}

/** `/trust-chain`, of a trust artifact `/chain`: each stage with the verdict on it. */
export function readTrustChainHttp(
  options: PublicOptions,
  input: ViewQuery,
): Promise<PublicAnswer<PublicTrustChain>> {
  return view(options, input, CHAIN, trustChainSchema);
}

/**
 * `/package` of a trust artifact: facade, history and chain, and the evidence that its proof is in
 * the log, all of one snapshot. `record.evidence` is null when it does not resolve.
 */
export function readTrustPackageHttp(
  options: PublicOptions,
  { trust_id: identifier }: { trust_id: string },
): Promise<PublicAnswer<PublicTrustPackage>> {
  const input = { kind: 'trust', identifier } as const;
  return view(options, input, { trust: 'package' }, trustPackageSchema);
}

/**
 * `GET /api/public/keys`: what the registry says its keys are. To believe them because they come
 * from where the proofs come is to believe whoever answers: compare them with pins from elsewhere.
 */
export async function readPublicKeysHttp(
  options: PublicOptions,
): Promise<PublicAnswer<PublicKeys>> {
  const registry = openRegistry(options);
  return withDeadline(options, (deadline) =>
    registry.read({ path: '/api/public/keys' }, publicKeysSchema, deadline),
  );
}

async function view<T>(
  options: PublicOptions,
  { kind, identifier }: ViewQuery,
  ends: Partial<Record<ViewedKind, string>>,
  schema: z.ZodType<T>,
): Promise<PublicAnswer<T>> {
  const registry = openRegistry(options);
  const end = Object.hasOwn(ends, kind) ? ends[kind] : undefined;
  if (end === undefined) {
    throw new SdkError('invalid_input', 'no such kind: certificate, passport, trust', {
      pointer: '/kind',
    });
  }
  const path = `/api/public/${kind}/${segment(identifier)}/${end}`;
  return withDeadline(options, (deadline) => registry.read({ path }, schema, deadline));
}
