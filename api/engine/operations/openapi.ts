import { utf8 } from '#protocol/bytes';
import { exampleOpenApi, openApiSchema } from '../../openapi/self.js';
import { serveFixed } from '../http/fixed-document.js';
import type { Operation } from '../operation.js';

export const openApiOperation: Operation = {
  spec: {
    id: 'openApi',
    method: 'get',
    path: '/openapi.json',
    tag: 'Service',
    summary: 'Get the OpenAPI document',
    description: '[/docs](/docs) shows the same as a page.',
    scopes: [],
    produces: ['application/json'],
    responses: {
      200: {
        description: 'OpenAPI 3.1 document of all operations.',
        content: { 'application/json': openApiSchema },
        headers: { ETag: 'Strong; send it back in `If-None-Match`.' },
        example: exampleOpenApi('Engine API'),
      },
      304: { description: 'Not changed since the ETag that was sent.' },
    },
    problems: [],
  },
  handler: ({ openApi }) =>
    serveFixed({ contentType: 'application/json', bytes: utf8(JSON.stringify(openApi)) }),
};
