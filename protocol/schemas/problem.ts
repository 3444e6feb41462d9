import * as z from 'zod';

/** An error of the engine (RFC 9457). Switch on `code`; the texts are for people. */
export const problemSchema = z.looseObject({
  type: z.string().meta({ description: '`urn:svc:problem:` and the code: a name, no address.' }),
  title: z.string(),
  status: z.int().min(400).max(599),
  detail: z.string(),
  code: z.string().meta({ description: 'What to switch on.' }),
  request_id: z.string().meta({ description: 'As in the header `X-Request-Id`.' }),
  /** RFC 6901 pointers into the body; '' is all of it. */
  errors: z.array(z.strictObject({ pointer: z.string(), detail: z.string() })).exactOptional(),
});
export type ProblemDocument = z.infer<typeof problemSchema>;

/** An error of the public API, which gives requests no ids and keeps nothing of them. */
export const publicProblemSchema = problemSchema.omit({ request_id: true });
export type PublicProblemDocument = z.infer<typeof publicProblemSchema>;
