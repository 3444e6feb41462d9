import { z } from 'zod';
import { utf8 } from '#protocol/bytes';
import { serveFixed } from '../http/fixed-document.js';
import type { Operation } from '../operation.js';

/** What a reader can rely on; the rest is the OpenAPI Specification's own affair. */
const openApiSchema = z
  .looseObject({
    openapi: z.literal('3.1.1'),
    info: z.looseObject({ title: z.string(), version: z.string() }),
    paths: z.record(z.string(), z.looseObject({})),
    components: z.looseObject({}),
  })
  .meta({ description: 'An OpenAPI 3.1 document: this one.' });

export const openApiOperation: Operation = {
  spec: {
    id: 'openApi',
    method: 'get',
    path: '/openapi.json',
    tag: 'Service',
    summary: 'This description',
    description: 'The same is on [/docs](/docs) for people.',
    scopes: [],
    produces: ['application/json'],
    responses: {
      200: {
        description: 'OpenAPI 3.1 of everything that is served here.',
        content: { 'application/json': openApiSchema },
        headers: { ETag: 'Strong; send it back in `If-None-Match`.' },
        example: {
          openapi: '3.1.1',
          info: { title: 'Engine API', version: '1.0.0' },
          paths: {},
          components: {},
        },
      },
      304: { description: 'Not changed since the ETag that was sent.' },
    },
    problems: [],
  },
  handler: ({ openApi }) =>
    serveFixed({ contentType: 'application/json', bytes: utf8(JSON.stringify(openApi)) }),
};
