import type * as z from 'zod';
import { historySchema, trustChainSchema, trustPackageSchema } from '#protocol/schemas/facade';
import { handledByFastPath, SNAPSHOT_PROBLEMS } from '../lookup/operations.js';
import {
  exampleChain,
  exampleHistory,
  exampleTrustPackage,
  exampleUnresolvedHistory,
} from '../openapi/examples.js';
import { revalidated, type Operation } from '../operation.js';

type Kind = 'certificate' | 'passport' | 'trust';

const NAME = { certificate: 'certificate', passport: 'passport', trust: 'trust artifact' } as const;

interface View {
  id: string;
  summary: string;
  description: string;
  schema: z.ZodType;
  examples: Record<string, unknown>;
}

const history = (kind: Kind): View => ({
  id: `${kind}History`,
  summary: `Get the status history of a ${NAME[kind]}`,
  description:
    'The events of its proof and of every artifact that this one depends on, oldest first; empty ' +
    'when the lookup does not resolve.',
  schema: historySchema,
  examples: { resolved: exampleHistory(kind), unresolved: exampleUnresolvedHistory(kind) },
});

const chain = (kind: Kind): View => ({
  id: `${kind}Chain`,
  summary: `Get the trust chain of a ${NAME[kind]}`,
  description: 'Each stage with its identifier and, where it has one, its verdict.',
  schema: trustChainSchema,
  examples: { resolved: exampleChain(kind) },
});

const trustPackage: View = {
  id: 'trustPackage',
  summary: 'Get a trust artifact with its evidence',
  description:
    'Lookup response (`facade`), history, chain and the evidence that the proof is in the log, all from ' +
    'one snapshot. `evidence` is null when the lookup does not resolve.',
  schema: trustPackageSchema,
  examples: { resolved: exampleTrustPackage },
};

const VIEWS: readonly [kind: Kind, end: string, view: View][] = [
  ['certificate', 'history', history('certificate')],
  ['certificate', 'trust-chain', chain('certificate')],
  ['passport', 'history', history('passport')],
  ['passport', 'trust-chain', chain('passport')],
  ['trust', 'timeline', history('trust')],
  ['trust', 'chain', chain('trust')],
  ['trust', 'package', trustPackage],
];

/** The views of an artifact. */
export const VIEW_OPERATIONS: readonly Operation[] = VIEWS.map(([kind, end, view]) => ({
  spec: {
    id: view.id,
    method: 'get',
    path: `/api/public/${kind}/{${kind}_id}/${end}`,
    tag: 'Artifacts',
    summary: view.summary,
    description: view.description,
    fromSnapshot: true,
    responses: revalidated({
      description: 'The view, also when the lookup does not resolve.',
      content: { 'application/json': view.schema },
      examples: view.examples,
    }),
    problems: SNAPSHOT_PROBLEMS,
  },
  handler: handledByFastPath,
}));
