import * as z from 'zod';

/** An error of the engine (RFC 9457). Branch on `code`; the texts are for display. */
export const problemSchema = z.looseObject({
  type: z.string().describe('`urn:svc:problem:` and the code. A name, not an address.'),
  title: z.string(),
  status: z.int().min(400).max(599),
  detail: z.string(),
  code: z.string().describe('Stable code to branch on.'),
  request_id: z.string().describe('The id of the request, as in the header `X-Request-Id`.'),
  /** RFC 6901 pointers into the body; '' is the whole body. */
  errors: z.array(z.strictObject({ pointer: z.string(), detail: z.string() })).exactOptional(),
});
export type ProblemDocument = z.infer<typeof problemSchema>;

/** An error of the public API, which assigns no request ids. */
export const publicProblemSchema = problemSchema.omit({ request_id: true });
