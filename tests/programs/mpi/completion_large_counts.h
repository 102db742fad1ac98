/* Part of completion.c: the calls with large counts, where the library has them. */
#pragma once

#include "completion_job.h"

#if MPI_VERSION >= 4
static void with_large_counts(void) {
  const MPI_Count count = 100000;
  unsigned char *out = malloc((size_t)count), *in = malloc((size_t)count);
  static unsigned char attached[400000];
  MPI_Buffer_attach_c(attached, sizeof attached);
  for (int kind = 0; kind < 18; ++kind) {
    MPI_Request request, sending = MPI_REQUEST_NULL;
    MPI_Status status;
    MPI_Message message;
    MPI_Count got;
    fill(out, (size_t)count, (unsigned)(rank + kind));
    memset(in, 1, (size_t)count);
    ++sent;
    const int receives = kind < 8;
    if (receives) {
      MPI_Irecv_c(in, count, MPI_BYTE, from, 70, MPI_COMM_WORLD, &request);
      MPI_Barrier(MPI_COMM_WORLD);
    }
    switch (kind) {
      case 0:
        MPI_Send_c(out, count, MPI_BYTE, to, 70, MPI_COMM_WORLD);
        break;
      case 1:
        MPI_Ssend_c(out, count, MPI_BYTE, to, 70, MPI_COMM_WORLD);
        break;
      case 2:
        MPI_Rsend_c(out, count, MPI_BYTE, to, 70, MPI_COMM_WORLD);
        break;
      case 3:
        MPI_Bsend_c(out, count, MPI_BYTE, to, 70, MPI_COMM_WORLD);
        break;
      case 4:
        MPI_Issend_c(out, count, MPI_BYTE, to, 70, MPI_COMM_WORLD, &sending);
        break;
      case 5:
        MPI_Irsend_c(out, count, MPI_BYTE, to, 70, MPI_COMM_WORLD, &sending);
        break;
      case 6:
        MPI_Ibsend_c(out, count, MPI_BYTE, to, 70, MPI_COMM_WORLD, &sending);
        break;
      case 7:
        MPI_Bsend_init_c(out, count, MPI_BYTE, to, 70, MPI_COMM_WORLD, &sending);
        MPI_Start(&sending);
        MPI_Wait(&sending, MPI_STATUS_IGNORE);
        MPI_Request_free(&sending);
        break;
      case 8:
        MPI_Isend_c(out, count, MPI_BYTE, to, 70, MPI_COMM_WORLD, &sending);
        MPI_Recv_c(in, count, MPI_BYTE, from, 70, MPI_COMM_WORLD, &status);
        break;
      case 9:
        MPI_Isend_c(out, count, MPI_BYTE, to, 70, MPI_COMM_WORLD, &sending);
        MPI_Mprobe(from, 70, MPI_COMM_WORLD, &message, &status);
        MPI_Mrecv_c(in, count, MPI_BYTE, &message, &status);
        break;
      case 10:
        MPI_Sendrecv_c(out, count, MPI_BYTE, to, 70, in, count, MPI_BYTE, from, 70, MPI_COMM_WORLD, &status);
        break;
      case 11:
        memcpy(in, out, (size_t)count);
        MPI_Sendrecv_replace_c(in, count, MPI_BYTE, to, 70, from, 70, MPI_COMM_WORLD, &status);
        break;
      case 12:
        MPI_Isend_c(out, count, MPI_BYTE, to, 70, MPI_COMM_WORLD, &sending);
        MPI_Mprobe(from, 70, MPI_COMM_WORLD, &message, &status);
        MPI_Imrecv_c(in, count, MPI_BYTE, &message, &request);
        break;
      case 13:
        MPI_Isendrecv_c(out, count, MPI_BYTE, to, 70, in, count, MPI_BYTE, from, 70, MPI_COMM_WORLD, &request);
        break;
      case 14:
        memcpy(in, out, (size_t)count);
        MPI_Isendrecv_replace_c(in, count, MPI_BYTE, to, 70, from, 70, MPI_COMM_WORLD, &request);
        break;
      default:
        MPI_Recv_init_c(in, count, MPI_BYTE, from, 70, MPI_COMM_WORLD, &request);
        (kind == 15   ? MPI_Send_init_c
         : kind == 16 ? MPI_Ssend_init_c
                      : MPI_Rsend_init_c)(out, count, MPI_BYTE, to, 70, MPI_COMM_WORLD, &sending);
        MPI_Start(&request);
        MPI_Barrier(MPI_COMM_WORLD); /* so that the receiver is ready */
        MPI_Start(&sending);
    }
    if (receives || kind >= 12) {
      MPI_Wait(&request, &status);
    }
    MPI_Wait(&sending, MPI_STATUS_IGNORE);
    if (kind >= 15) {
      MPI_Request_free(&request);
      MPI_Request_free(&sending);
    }
    check_status(&status, from, 70, (int)count);
    MPI_Get_count_c(&status, MPI_BYTE, &got);
    CHECK(got == count);
    CHECK(same(in, (size_t)count, (unsigned)(from + kind)));
    MPI_Barrier(MPI_COMM_WORLD);
  }
  void* address;
  MPI_Count size;
  MPI_Buffer_detach_c(&address, &size);
  free(out);
  free(in);
}
#else
static void with_large_counts(void) {}
#endif
