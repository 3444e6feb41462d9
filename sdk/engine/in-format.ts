import { SdkError } from '../errors.js';
import type { Answer } from '../http/attempt.js';
import { withDeadline } from '../http/deadline.js';
import type { EngineOptions } from '../options.js';
import { openEngine, type EngineRequest } from './engine.js';
import { enveloped, type RequestHashEnvelope } from './envelope.js';
import { requireProofId } from './receipt.js';

/** How a document of a proof is asked for in each of its formats, and read. */
export type Formats<All> = {
  [F in keyof All]: {
    /** Media type of the answer. */
    accept: string;
    read: (answer: Answer, proofId: string) => All[F];
  };
};

/** A document of a proof in `format`; `invalid_input` for one that is not among `formats`. */
export async function proofInFormat<All, F extends keyof All & string>(
  options: EngineOptions,
  formats: Formats<All>,
  { proof_id, format }: { proof_id: string; format: F },
  where: (proofId: string) => Pick<EngineRequest, 'path' | 'query'>,
): Promise<RequestHashEnvelope<All[F]>> {
  const engine = openEngine(options);
  const proofId = requireProofId(proof_id);
  if (!Object.hasOwn(formats, format)) {
    throw new SdkError('invalid_input', `no such format: ${Object.keys(formats).join(', ')}`, {
      pointer: '/format',
    });
  }
  const { accept, read } = formats[format];
  const request = { method: 'GET', ...where(proofId), accept } as const;
  return withDeadline(options, (deadline) =>
    enveloped(engine, request, deadline, (answer) => read(answer, proofId)),
  );
}
